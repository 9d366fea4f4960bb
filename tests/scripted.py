"""Stand-ins for the two services that a rollout talks to: a sampler and a search back end.

The sampler speaks lines that a test wrote, and checks of every request that it continues a
sequence which it handed out, token by token. Scripts of one sampler must differ from the first
line on, or it cannot tell them apart.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from searchr1.sampler import Sample
from searchr1.search.base import SearchErrorKind, SearchResult
from searchr1.trajectory import SearchItem

Line = str | Sample | Exception


class Request(NamedTuple):
    """What the sampler was asked."""

    prompt: list[int]
    count: int
    max_tokens: int
    stop: list[int]
    seed: int | None


@dataclass
class ScriptedSampler:
    """Speaks `scripts[i]` line by line as trajectory i; an exception is raised, a `Sample` is
    returned as it is. `ending` is appended to every spoken line: the part of the closing tokens
    that this service returns."""

    tokenizer: PreTrainedTokenizerBase
    scripts: Sequence[Sequence[Line]]
    ending: Sequence[int] = ()
    requests: list[Request] = field(default_factory=list)
    samples: dict[tuple[int, int], Sample] = field(default_factory=dict)
    """What trajectory i was given in turn t."""
    _waiting: dict[int, tuple[list[int], int]] = field(default_factory=dict)
    """Tokens of each trajectory so far, and its next turn."""

    async def sample(
        self,
        prompt: Sequence[int],
        count: int,
        max_tokens: int,
        stop: Sequence[int],
        seed: int | None,
    ) -> list[Sample]:
        self.requests.append(Request(list(prompt), count, max_tokens, list(stop), seed))
        if not self._waiting:
            if isinstance(first := self.scripts[0][0], Exception):
                raise first
            self._waiting = {index: (list(prompt), 0) for index in range(count)}
            return [self._speak(index, list(prompt)) for index in range(count)]
        continued = {
            index: len(tokens)
            for index, (tokens, turn) in self._waiting.items()
            if turn > 0 and list(prompt[: len(tokens)]) == tokens
        }
        assert continued, "the prompt continues nothing that was sampled"
        index = max(continued, key=lambda index: continued[index])
        return [self._speak(index, list(prompt))]

    def _speak(self, index: int, prompt: list[int]) -> Sample:
        turn = self._waiting[index][1]
        line = self.scripts[index][turn]
        if isinstance(line, Exception):
            raise line
        sample = line if isinstance(line, Sample) else self.spoken(line)
        self._waiting[index] = ([*prompt, *sample.tokens], turn + 1)
        self.samples[index, turn] = sample
        return sample

    def spoken(self, text: str) -> Sample:
        """The sample that says `text`; no two positions have the same logprob."""
        tokens = [*self.tokenizer.encode(text, add_special_tokens=False), *self.ending]
        return Sample(tuple(tokens), tuple(-0.001 * (place + 1) for place in range(len(tokens))))


@dataclass
class ScriptedBackend:
    """Answers every query by `answer`, which may raise."""

    answer: Callable[[str], SearchResult]
    delay: Callable[[str], float] = lambda query: 0.0
    queries: list[str] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    name: str = "scripted"
    fingerprint: dict[str, Any] = field(default_factory=dict)

    async def search(self, query: str) -> SearchResult:
        self.queries.append(query)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(self.delay(query))
            return self.answer(query)
        finally:
            self.running -= 1

    async def aclose(self) -> None: ...


def found(*texts: str) -> SearchResult:
    """A search that went well."""
    items = tuple(SearchItem("", text, "https://example.org") for text in texts)
    return SearchResult(ok=True, items=items, seconds=0.25, cost=0.001)


def failed(kind: SearchErrorKind) -> SearchResult:
    """A search that did not."""
    return SearchResult(ok=False, error=kind, message="it did not work", seconds=0.5)
