"""Settings of the search layer, with the seed's names. No key is a setting: keys come only from
the environment (see `searchr1.search.credentials`)."""

import getpass
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, Field


class SearchBackendName(StrEnum):
    """The back ends."""

    LOCAL = "local"
    """BM25 over a corpus file on this machine; free, no network."""
    DEEPSEEK = "deepseek"
    """DeepSeek's web search API; needs DEEPSEEK_API_KEY, USD 0.75 per 1,000 searches."""
    WIKIPEDIA = "wikipedia"
    """Search and introductions of English Wikipedia; free, needs WIKIPEDIA_CONTACT."""
    ZHIHU = "zhihu"
    """Zhihu's global search; needs ZHIHU_SEARCH_KEYS, each with a daily quota."""
    RETRIEVER = "retriever"
    """The retrieval server of the Search-R1 paper's code, at `retriever_url`."""


class CacheMode(StrEnum):
    """How answers are kept. Only successful answers are ever kept."""

    OFF = "off"
    """Every search asks the back end; nothing is read or written."""
    USE = "use"
    """A kept answer is reused, for however old it is; a new one is kept. Answers of the local
    back end are not kept in this mode: computing them again is cheaper than looking them up."""
    RECORD = "record"
    """Each query asks the back end once per process and replaces what was kept: a fresh
    recording, in which a query keeps one answer."""
    REPLAY = "replay"
    """Only kept answers; the network is never touched, and a miss is an environment error."""


class BackendDefaults(NamedTuple):
    """What a `None` in the settings means for a back end."""

    concurrency: int
    timeout: float
    requests_per_minute: int | None


DEFAULTS = {
    SearchBackendName.LOCAL: BackendDefaults(16, 30.0, None),
    SearchBackendName.DEEPSEEK: BackendDefaults(16, 60.0, 3_000),
    SearchBackendName.WIKIPEDIA: BackendDefaults(3, 15.0, 200),
    SearchBackendName.ZHIHU: BackendDefaults(1, 15.0, 60),
    SearchBackendName.RETRIEVER: BackendDefaults(16, 30.0, None),
}


def _machine_folder() -> Path:
    """Of this user on this machine: every process of theirs finds the same one."""
    return Path(tempfile.gettempdir()) / f"searchr1-{getpass.getuser()}"


class SearchSettings(BaseModel):
    """The search environment of a run."""

    search_backend: SearchBackendName = Field(
        SearchBackendName.DEEPSEEK,
        description="Where searches are answered: local, deepseek, wikipedia, zhihu or retriever.",
    )
    search_top_k: int = Field(3, ge=1, le=20, description="Results shown to the policy a search.")
    search_concurrency: int | None = Field(
        None,
        ge=1,
        description="Searches in flight at once in this process. Default: deepseek 16, "
        "wikipedia 3, zhihu 1, local and retriever 16.",
    )
    search_timeout: float | None = Field(
        None,
        gt=0,
        description="Seconds that one request may take. Default: deepseek 60, wikipedia and "
        "zhihu 15, local and retriever 30.",
    )
    search_total_timeout: float = Field(
        300.0,
        gt=0,
        description="Seconds that one search may take in all, with waiting and retries.",
    )
    search_requests_per_minute: int | None = Field(
        None,
        ge=1,
        description="Requests a minute, shared by all processes of this machine. Default: "
        "deepseek 3000, wikipedia 200, zhihu 60, local and retriever without limit.",
    )
    search_attempts: int = Field(
        4, ge=1, description="Requests sent for one search at most, the first one included."
    )
    search_max_retry_after: float = Field(
        60.0, ge=0, description="Seconds that a service's Retry-After is obeyed at most."
    )
    search_circuit_failures: int = Field(
        5, ge=1, description="Failed searches in a row after which searches fail at once."
    )
    search_circuit_seconds: float = Field(
        30.0, gt=0, description="Seconds after which one search tests whether the service is back."
    )
    search_outage_share: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Share of failed searches in a step, of at least 10, above which the step is "
        "broken off and tried again later.",
    )
    search_cache: CacheMode = Field(
        CacheMode.USE,
        description="off: always ask; use: reuse kept answers; record: ask anew and keep; "
        "replay: kept answers only, no network.",
    )
    search_cache_dir: Path = Field(
        Path("data/search"), description="Folder of kept answers and of local search indexes."
    )
    search_rate_dir: Path = Field(
        default_factory=_machine_folder,
        description="Folder through which processes share the requests per minute.",
    )
    search_corpus: Path | None = Field(
        None,
        description="Corpus of the local back end: JSON Lines or Parquet with document_id (or "
        "id), title, and text (or contents).",
    )
    search_cost: float | None = Field(
        None,
        ge=0,
        description="US dollars a search that has results. Default: deepseek 0.00075, others 0.",
    )
    deepseek_evidence: tuple[Literal["snippet", "summary", "content"], ...] = Field(
        ("snippet", "summary"),
        min_length=1,
        description="Fields of a DeepSeek result that may serve as its text, first one with "
        "text wins: snippet (100-200 characters), summary (600-800), content (the page).",
    )
    zhihu_cooldown: float = Field(
        300.0, ge=0, description="Seconds that a Zhihu key rests after its quota is used up."
    )
    retriever_url: str = Field(
        "http://127.0.0.1:8000/retrieve", description="Address of the Search-R1 retrieval server."
    )

    @property
    def search_defaults(self) -> BackendDefaults:
        """Concurrency, time-out and rate in force: what is set, else the back end's default."""
        default = DEFAULTS[self.search_backend]
        return BackendDefaults(
            self.search_concurrency or default.concurrency,
            self.search_timeout or default.timeout,
            self.search_requests_per_minute or default.requests_per_minute,
        )


OPERATIONAL_FIELDS = frozenset(SearchSettings.model_fields) - {
    "search_backend",
    "search_top_k",
    "search_corpus",
    "deepseek_evidence",
    "retriever_url",
}
"""Settings that do not change what a successful search answers: they may change within a run."""
