"""All runs in one DuckDB file, `<folder of runs>/warehouse.duckdb`, for questions in SQL.

The file is derived: run directories are the truth, `rebuild` makes it anew from them at any time,
and `load` brings it up to date by reading only files that are new or changed. A load works on a
copy that replaces the file in one rename, so a reader never waits, never sees half of a load, and
never blocks a training (DuckDB itself allows one writer and no reader beside it). A reader that
has the file open keeps what it saw. Loads from several processes take turns.

Columns are documented in the file itself: the view `documentation` lists what each one means.
"""

from searchr1.warehouse.loader import WAREHOUSE, load, rebuild
from searchr1.warehouse.reading import open_warehouse

__all__ = ["WAREHOUSE", "load", "open_warehouse", "rebuild"]
