"""One stage for all tests of a session, and the undisturbed trainings to compare with."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from searchr1.data import corpus_path
from searchr1.search.index import open_index
from tests.conftest import Flows
from tests.deployments.conftest import client, no_deployments, prefect  # noqa: F401  (fixtures)
from tests.faults.outcome import Outcome, outcome
from tests.faults.stage import KEY, CountingSearch, FaultyEngine, Stage, prepare_world


@pytest.fixture(scope="session")
def stage(
    prefect_server: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """Engine and search server run until the end of the session."""
    folder = tmp_path_factory.mktemp("faults")
    home = folder / "engine"
    home.mkdir()
    with FaultyEngine(home) as engine:
        prepare_world(folder / "data")
        index, _ = open_index(corpus_path(folder / "data"), folder / "index")
        environment = {
            **prefect_server,
            "PYTRIO_BASE_URL": engine.url,
            "PYTRIO_API_KEY": KEY,
            "HOME": str(folder),
            "NO_PROXY": "127.0.0.1,localhost",
        }
        with CountingSearch(index) as search:
            yield Stage(Flows(environment, folder), engine, search)


@pytest.fixture(scope="session")
def undisturbed(stage: Stage) -> Callable[..., Outcome]:
    """The outcome of a training with these further settings that nothing happens to; each is
    run once."""
    known: dict[tuple[str, ...], Outcome] = {}

    def run(*settings: str) -> Outcome:
        if settings not in known:
            name = f"undisturbed-{len(known)}"
            stage.engine.meet(None)
            before = len(stage.engine.log())
            stage.finish(name, *settings)
            requests = len(stage.engine.log()) - before
            known[settings] = replace(outcome(stage, name), requests=requests)
            assert all(record["datums"] for record in known[settings].ledger if record["step"])
        return known[settings]

    return run
