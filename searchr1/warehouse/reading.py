"""Open the warehouse to read."""

from pathlib import Path

import duckdb

from searchr1.errors import DataError
from searchr1.warehouse.loader import WAREHOUSE


def open_warehouse(runs_dir: Path) -> duckdb.DuckDBPyConnection:
    """A read-only connection. Raises DataError when there is no warehouse yet."""
    path = runs_dir / WAREHOUSE
    if not path.exists():
        raise DataError(
            f"there is no warehouse at {path} yet. Build it with: "
            f"python -m searchr1.warehouse --runs-dir {runs_dir}"
        )
    return duckdb.connect(str(path), read_only=True, config={"memory_limit": "1GB"})
