"""DuckDB in memory, with the text functions that the columnar stages share."""

from functools import cache

import duckdb
import pyarrow as pa

_ODD_SPACE = (
    r"\x09-\x0d\x1c-\x1f\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}"
    r"\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
)
"""For RE2: white space as Python's str.split knows it, the plain space apart."""

# Most texts are folded already, and finding that out is many times faster than replacing.
_MACROS = rf"""
create macro fold(t) as case
    when regexp_matches(t, '[{_ODD_SPACE}]|  |^ | $')
    then trim(regexp_replace(t, '[ {_ODD_SPACE}]+', ' ', 'g'), ' ')
    else t
end;
create macro irregular(t) as
    regexp_matches(t, '[{_ODD_SPACE}]|  |^ | $|^$|^[\[{{]|^array\(');
create macro question_key(t) as
    trim(regexp_replace(lower(nfc_normalize(t)), ' ?[^ \pL\pM\pN][^\pL\pM\pN]*', ' ', 'g'), ' ');
"""


_PIECE = 8192
"""Rows; fastest of 2,048 to 65,536 as measured."""


@cache
def _database() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    database.execute(_MACROS)
    return database


def connect() -> duckdb.DuckDBPyConnection:
    """A connection of one's own, with temporary tables of its own, and these functions of text:

    - `fold`: white space folded and trimmed, as `searchr1.data.answers.fold` does;
    - `irregular`: whether it is no answer as it stands: empty, not folded, or maybe a list or
      dict written as text (`searchr1.data.answers.may_be_written_value`);
    - `question_key`: letters, marks and digits of folded text in lower case, everything else one
      space. Two questions with the same key are the same question.
    """
    return _database().cursor()


def register(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    """Make `table` readable as `name`, in pieces, so that all cores take part."""
    pieces = table.to_batches(max_chunksize=_PIECE)
    connection.register(name, pa.Table.from_batches(pieces, table.schema))
