"""From settings to a back end with everything around it."""

from pathlib import Path

from searchr1.errors import SettingsError
from searchr1.search.deepseek import DeepSeekProvider
from searchr1.search.environment import SearchEnvironment
from searchr1.search.provider import SearchProvider
from searchr1.search.retriever import RetrieverProvider
from searchr1.search.settings import CacheMode, SearchBackendName, SearchSettings
from searchr1.search.store import AnswerStore
from searchr1.search.wikipedia import WikipediaProvider
from searchr1.search.zhihu import ZhihuProvider

_REMOTE = {
    SearchBackendName.DEEPSEEK: DeepSeekProvider,
    SearchBackendName.WIKIPEDIA: WikipediaProvider,
    SearchBackendName.ZHIHU: ZhihuProvider,
    SearchBackendName.RETRIEVER: RetrieverProvider,
}


def create_backend(settings: SearchSettings) -> SearchEnvironment:
    """The back end that the settings describe. Sends nothing; builds the index of a local corpus
    that has none yet.

    Raises:
        SettingsError: a key, contact, address or recording is missing or wrong.
        DataError: the corpus or the cache file cannot be read.
    """
    environment = SearchEnvironment(_provider(settings), settings, _store(settings))
    if settings.search_cache is CacheMode.REPLAY:
        environment.check_recording()
    return environment


def _provider(settings: SearchSettings) -> SearchProvider:
    if settings.search_backend is SearchBackendName.LOCAL:
        # Loads scipy and pyarrow, which no other back end needs.
        from searchr1.search.local import LocalProvider

        return LocalProvider(settings)
    return _REMOTE[settings.search_backend](settings)


def store_path(settings: SearchSettings) -> Path:
    """The file of kept answers."""
    return settings.search_cache_dir / "answers.sqlite"


def _store(settings: SearchSettings) -> AnswerStore | None:
    mode, path = settings.search_cache, store_path(settings)
    free = settings.search_backend is SearchBackendName.LOCAL and mode is CacheMode.USE
    if mode is CacheMode.OFF or free:
        return None
    if mode is CacheMode.REPLAY and not path.is_file():
        raise SettingsError(
            f"There is nothing to replay: {path} does not exist. Import a recording (python -m "
            "searchr1.search --import FILE) or make one with search_cache=record."
        )
    return AnswerStore(path)
