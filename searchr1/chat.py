"""Tokens of a conversation: the first prompt from the model's chat template, then appending only.

Tokens in, tokens out. The chat template renders the first prompt; after that the prompt of the
next turn is the prompt before, the sampled tokens exactly as sampled, the closing tokens that the
sampler did not return, and the tokens of the observation. History is never rendered or tokenised
again, so a template that trims or rewrites earlier turns cannot move what was sampled.

What surrounds an assistant turn and a tool's result is taken from the template once, by rendering
sentinels. A template whose framing depends on what comes before or after is refused.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from jinja2 import TemplateError

from searchr1.errors import SettingsError
from searchr1.protocol import SEARCH_TOOL, SYSTEM_PROMPT
from searchr1.search.observation import MARKERS, neutralise

_QUESTION = "SENTINELquestion"
_FIRST_TURN, _FIRST_RESULT = "SENTINELturnONE", "SENTINELresultONE"
_SECOND_TURN, _SECOND_RESULT = "SENTINELturnTWO", "SENTINELresultTWO"


class Framing(NamedTuple):
    """What a chat template writes around the parts that vary."""

    closing: str
    """After an assistant turn."""
    before_result: str
    """From there to a tool's result."""
    after_result: str
    """From a tool's result to where the next assistant turn begins."""


class ChatTokenizer(Protocol):
    """The part of a transformers tokenizer (`PreTrainedTokenizerBase`) that is used here."""

    @property
    def all_special_ids(self) -> list[int]: ...
    @property
    def eos_token_id(self) -> Any: ...
    def __len__(self) -> int: ...
    def get_added_vocab(self) -> dict[str, int]: ...
    def apply_chat_template(self, conversation: Any, **options: Any) -> Any: ...
    def encode(self, text: str, **options: Any) -> list[int]: ...
    def decode(self, token_ids: Any, **options: Any) -> Any: ...


class ChatFormat:
    """How one model's conversations are written in tokens. Stateless after construction.

    Raises:
        SettingsError: the model has no chat template, or one that does not append.
    """

    def __init__(self, tokenizer: ChatTokenizer, system_prompt: str = SYSTEM_PROMPT) -> None:
        self._tokenizer = tokenizer
        self._system_prompt = system_prompt
        added = {
            content: token
            for content, token in tokenizer.get_added_vocab().items()
            if content.strip()  # some vocabularies add runs of spaces, which are harmless
        }
        self._reserved = frozenset(added.values()) | frozenset(tokenizer.all_special_ids)
        self.markers: frozenset[str] = frozenset(added) | frozenset(MARKERS)
        """Strings that must not stand in text from outside: special and added tokens, and the
        chat structure that `searchr1.protocol` reads."""

        framing = self._framing()
        self.closing: tuple[int, ...] = tuple(self.encode(framing.closing))
        """Tokens that end an assistant turn."""
        if not self.closing or self.closing[0] not in self._reserved:
            raise self._unusable(f"ends a turn with {framing.closing!r}, not with a special token")
        end_of_text = tokenizer.eos_token_id
        self.stop_ids: tuple[int, ...] = tuple(
            dict.fromkeys(
                (self.closing[0], *([end_of_text] if isinstance(end_of_text, int) else []))
            )
        )
        """Tokens at which a turn ends."""

        # The plain text that touches a result is encoded together with it, so that the tokens are
        # those which the whole rendering would have.
        cut_before = max((_end_of_last(framing.before_result, text) for text in added), default=0)
        cut_after = min(
            (at for text in added if (at := framing.after_result.find(text)) >= 0),
            default=len(framing.after_result),
        )
        self._before_result = self.encode(framing.before_result[:cut_before])
        self._touching = framing.before_result[cut_before:], framing.after_result[:cut_after]
        self._after_result = self.encode(framing.after_result[cut_after:])
        self.observation_overhead: int = len(self.closing) + len(self.observe(""))
        """Tokens that closing a turn and observing take beside the text of the observation, give
        or take one or two: the text may merge with the line breaks that touch it."""

    @property
    def vocabulary_size(self) -> int:
        """Every token id is below this."""
        return len(self._tokenizer)

    def first_prompt(self, question: str) -> list[int]:
        """The tokens [P] from which the first turn is sampled."""
        return self.encode(
            self._render([self._user(neutralise(question, self.markers))], generate=True)
        )

    def close(self, sampled: Sequence[int]) -> list[int]:
        """The closing tokens that `sampled` [N] lacks, found by value: services differ in how
        much of the closing they return, from nothing to all of it."""
        return list(self.closing[self._closed(sampled) :])

    def observe(self, text: str) -> list[int]:
        """The tokens from the end of a closed turn to where the next turn begins, with `text` as
        a tool's result. The text is data: no special or added token comes out of it."""
        before, after = self._touching
        data = self.encode(before + neutralise(text, self.markers) + after)
        # Some added tokens cannot be broken up in the text (a single sign, say).
        data = [token for token in data if token not in self._reserved]
        return [*self._before_result, *data, *self._after_result]

    def text(self, sampled: Sequence[int]) -> str:
        """What a turn says: all its tokens, special ones included, without the closing."""
        said = list(sampled[: len(sampled) - self._closed(sampled)])
        return str(self._tokenizer.decode(said, clean_up_tokenization_spaces=False))

    def ended(self, sampled: Sequence[int]) -> bool:
        """Whether `sampled` ends at a stop token. A service that leaves it out says False."""
        return bool(sampled) and (self._closed(sampled) > 0 or sampled[-1] in self.stop_ids)

    def encode(self, text: str) -> list[int]:
        """Tokens of `text`, nothing added around it."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def _closed(self, sampled: Sequence[int]) -> int:
        """How many tokens of the closing `sampled` ends with."""
        for length in range(min(len(self.closing), len(sampled)), 0, -1):
            if tuple(sampled[len(sampled) - length :]) == self.closing[:length]:
                return length
        return 0

    def _user(self, question: str) -> dict[str, str]:
        return {"role": "user", "content": question}

    def _render(self, messages: list[dict[str, Any]], generate: bool) -> str:
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    [{"role": "system", "content": self._system_prompt}, *messages],
                    tools=[SEARCH_TOOL],
                    tokenize=False,
                    add_generation_prompt=generate,
                    enable_thinking=False,
                )
            )
        except (TemplateError, ValueError) as error:  # ValueError: there is no template at all
            raise self._unusable("cannot render a question, a turn and a tool's result") from error

    def _framing(self) -> Framing:
        """Take the framing from the template, and check that the template appends."""
        turn = {"role": "assistant", "content": _FIRST_TURN}
        result = {"role": "tool", "name": "search", "content": _FIRST_RESULT}
        started = [self._user(_QUESTION), turn]
        observed = [*started, result]
        again = [
            *observed,
            {**turn, "content": _SECOND_TURN},
            {**result, "content": _SECOND_RESULT},
        ]

        closing = self._between(self._render(started, generate=False), _FIRST_TURN, None)
        rendered = self._render(observed, generate=True)
        middle = self._between(rendered, _FIRST_TURN, _FIRST_RESULT)
        after_result = self._between(rendered, _FIRST_RESULT, None)
        if not middle.startswith(closing):
            raise self._unusable("ends a turn differently once a tool's result follows")

        twice = self._render(again, generate=True)
        if not twice.startswith(self._render(observed, generate=False)):
            raise self._unusable("rewrites earlier messages when later ones arrive")
        second = self._between(twice, _SECOND_TURN, _SECOND_RESULT)
        if (second, self._between(twice, _SECOND_RESULT, None)) != (middle, after_result):
            raise self._unusable("frames a second turn differently from the first")
        return Framing(closing, middle.removeprefix(closing), after_result)

    def _between(self, rendered: str, start: str, end: str | None) -> str:
        """What stands between two sentinels, or between one and the end."""
        for sentinel in filter(None, (start, end)):
            if rendered.count(sentinel) != 1:
                raise self._unusable("does not show every message exactly once")
        rendered = rendered.partition(start)[2]
        return rendered if end is None else rendered.partition(end)[0]

    def _unusable(self, what: str) -> SettingsError:
        model = getattr(self._tokenizer, "name_or_path", "") or "this model"
        return SettingsError(
            f"The chat template of {model} {what}, so turns cannot be appended token by token. "
            "Choose a chat model of the Qwen2.5, Qwen3 or Qwen3.5 family, or give the model's "
            "folder a template that only appends."
        )


def _end_of_last(text: str, part: str) -> int:
    """Where the last `part` in `text` ends; 0 if there is none."""
    at = text.rfind(part)
    return 0 if at < 0 else at + len(part)
