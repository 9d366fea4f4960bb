"""What a flow holds open while it trains or evaluates: service, search back end, chat format.

Everything is checked and opened here, cheapest first, so that a wrong setting, a missing key or
data that is not prepared ends a flow before anything is started or paid for.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from searchr1.chat import ChatFormat
from searchr1.config import RolloutSettings, ServiceKind, WorkSettings, digest
from searchr1.data import DataSource, corpus_path, load_questions
from searchr1.embedded import check_installed, embedded_engine, model_folder
from searchr1.policy import (
    PolicyService,
    SamplingOptions,
    ServiceAddress,
    ServiceSampler,
    require_key,
)
from searchr1.protocol import SYSTEM_PROMPT
from searchr1.rollout import RolloutLimits
from searchr1.search import SearchBackend, SearchSettings, create_backend
from searchr1.trajectory import Question


def search_settings(settings: WorkSettings) -> SearchSettings:
    """The search settings, with the built-in world's corpus filled in where it is the source."""
    chosen = SearchSettings.model_validate(
        settings.model_dump(include=set(SearchSettings.model_fields))
    )
    if chosen.search_corpus is None and settings.source is DataSource.WORLD:
        return chosen.model_copy(update={"search_corpus": corpus_path(settings.data_dir)})
    return chosen


def limits(settings: RolloutSettings) -> RolloutLimits:
    """What a trajectory may do."""
    return RolloutLimits(
        max_search_calls=settings.max_search_calls,
        max_assistant_turns=settings.max_assistant_turns,
        max_trajectory_tokens=settings.max_trajectory_tokens,
        max_assistant_tokens=settings.max_assistant_tokens,
        max_tool_response_tokens=settings.max_tool_response_tokens,
    )


def sampling_options(settings: WorkSettings) -> SamplingOptions:
    """How tokens are drawn."""
    return SamplingOptions(settings.temperature, settings.top_p, settings.sample_timeout)


@dataclass
class Workbench:
    """Open resources of one flow run."""

    settings: WorkSettings
    questions: list[Question]
    backend: SearchBackend
    policies: PolicyService
    _chat: ChatFormat | None = None

    async def chat(self, sampler: ServiceSampler) -> ChatFormat:
        """How conversations with the sampler's model are written. The tokenizer is loaded once,
        off the event loop."""
        if self._chat is None:
            tokenizer = await asyncio.to_thread(sampler.tokenizer)
            prompt = self.settings.system_prompt or SYSTEM_PROMPT
            self._chat = ChatFormat(tokenizer, prompt)
        return self._chat

    @property
    def environment(self) -> dict[str, Any]:
        """The search environment and the rules of a trajectory, without keys."""
        rules = self.settings.model_dump(
            mode="json", include=set(RolloutSettings.model_fields) - {"temperature", "top_p"}
        )
        return {"search": self.backend.fingerprint, "rules": rules}

    @property
    def environment_fingerprint(self) -> str:
        """Equal for evaluations that may be compared."""
        return digest(self.environment)


@asynccontextmanager
async def open_workbench(settings: WorkSettings, question_set: str) -> AsyncIterator[Workbench]:
    """Check settings, keys and data, then start what is needed; all of it is closed at the end.
    The first task that needs the service connects to it, so that an outage is retried.

    Raises SettingsError, DataError, or EngineFailed when the embedded engine does not start.
    """
    questions = await asyncio.to_thread(load_questions, settings.data_dir, question_set)
    async with AsyncExitStack() as stack:
        backend = create_backend(search_settings(settings))
        stack.push_async_callback(backend.aclose)
        address = ServiceAddress(retry_seconds=settings.service_retry_seconds)
        policies = PolicyService(lambda: address, settings.service_timeout)
        if settings.policy_service is ServiceKind.EMBEDDED:
            starting = embedded_engine(settings.runs_dir / ".engine", settings.base_model)
            engine = await asyncio.to_thread(stack.enter_context, starting)
            policies = PolicyService(engine.address, settings.service_timeout)
        yield Workbench(settings, questions, backend, policies)


async def preflight(settings: WorkSettings, question_set: str | None) -> None:
    """Find what is wrong or missing before anything is started: a key, a model, and, unless
    `question_set` is None because it is yet to be prepared, the data.

    Raises SettingsError, DataError or PolicyRefused.
    """
    if settings.policy_service is ServiceKind.EMBEDDED:
        check_installed()
        model_folder(settings.base_model)
    else:
        require_key()
    if question_set is not None:
        load_questions(settings.data_dir, question_set)
    if question_set is not None or settings.source is not DataSource.WORLD:
        await create_backend(search_settings(settings)).aclose()
