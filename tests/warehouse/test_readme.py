"""The queries that the README lists."""

import re
from pathlib import Path

from searchr1.warehouse import load, open_warehouse
from tests.synthetic_run import make_run

README = Path(__file__).parents[2] / "README.md"


def test_the_readmes_queries_work_and_are_at_least_ten(tmp_path: Path) -> None:
    queries = re.findall(r'searchr1\.warehouse "([^"]+)"', README.read_text(encoding="utf-8"))
    make_run(tmp_path / "runs", steps=2, save_every=1, evaluation_questions=21)
    load(tmp_path / "runs")
    with open_warehouse(tmp_path / "runs") as connection:
        for query in queries:
            assert connection.execute(query).fetchall() != [], query
    assert len(set(queries)) >= 10
