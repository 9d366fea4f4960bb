"""`python -m searchr1.warehouse "select …"`: bring the warehouse up to date, ask, print a table."""

import argparse
import csv
import sys
from pathlib import Path

import duckdb
from rich.console import Console
from rich.table import Table
from rich.text import Text

from searchr1.warehouse.loader import load, rebuild, view_names
from searchr1.warehouse.reading import open_warehouse

_HELP = """\
Ask the warehouse of all runs in SQL (DuckDB's).

examples:
  python -m searchr1.warehouse                        what there is to ask
  python -m searchr1.warehouse "from comparison"      base and checkpoints
  python -m searchr1.warehouse "select * from gained_lost where change = 'lost'"
  python -m searchr1.warehouse "from documentation where table_name = 'searches'"
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m searchr1.warehouse",
        description=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("query", nargs="?", help="SQL; without it, tables and views are listed")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"), help="folder of the runs")
    parser.add_argument("--rebuild", action="store_true", help="build the file from nothing first")
    parser.add_argument("--rows", type=int, default=200, help="rows to print at most; 0 = all")
    parser.add_argument("--csv", action="store_true", help="print CSV instead of a table")
    options = parser.parse_args(arguments)
    if not options.runs_dir.is_dir():
        print(
            f"There is no folder {options.runs_dir}. Train first, or name the folder of your runs "
            "with --runs-dir.",
            file=sys.stderr,
        )
        return 2
    (rebuild if options.rebuild else load)(options.runs_dir)
    console = Console()
    with open_warehouse(options.runs_dir) as connection:
        if options.query is None:
            _print_contents(connection, console)
            return 0
        try:
            cursor = connection.execute(options.query)
        except duckdb.Error as error:
            print(f"{error}\nTables and views: {', '.join(_names(connection))}", file=sys.stderr)
            return 1
        if options.csv:
            writer = csv.writer(sys.stdout)
            writer.writerow(_columns(cursor))
            writer.writerows(cursor.fetchall())
        else:
            _print_rows(cursor, console, options.rows)
    return 0


def _names(connection: duckdb.DuckDBPyConnection) -> list[str]:
    return [name for (name,) in connection.execute("SHOW TABLES").fetchall()]


def _print_contents(connection: duckdb.DuckDBPyConnection, console: Console) -> None:
    table = Table("name", "kind", "rows", "what it tells", box=None, pad_edge=False)
    comments: dict[str, str] = dict(
        connection.execute(
            "SELECT table_name, comment FROM duckdb_tables() UNION ALL "
            "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal"
        ).fetchall()
    )
    views = set(view_names())
    for name in _names(connection):
        kind = "view" if name in views else "table"
        rows = "" if kind == "view" else f"{_count(connection, name):,}"
        table.add_row(name, kind, rows, comments.get(name) or "")
    console.print(table)


def _count(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    return connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]


def _columns(cursor: duckdb.DuckDBPyConnection) -> list[str]:
    return [column[0] for column in cursor.description or ()]


def _print_rows(cursor: duckdb.DuckDBPyConnection, console: Console, most: int) -> None:
    rows = cursor.fetchmany(most + 1) if most else cursor.fetchall()
    table = Table(*_columns(cursor), box=None, pad_edge=False)
    for row in rows[:most] if most else rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    console.print(table)
    if most and len(rows) > most:
        console.print(f"… more than {most} rows; --rows 0 prints all of them", style="dim")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return str(value)


if __name__ == "__main__":
    sys.exit(main())
