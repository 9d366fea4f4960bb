"""DuckDB in memory, with the text functions that the columnar stages share."""

import duckdb

SPACE = (
    r"[\x09-\x0d\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}"
    r"\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"
)
"""One white-space character as Python's str.split knows it, for RE2."""

_MACROS = rf"""
create macro fold(t) as trim(regexp_replace(t, '{SPACE}+', ' ', 'g'), ' ');
create macro written(t) as regexp_matches(t, '^{SPACE}*([\[{{]|array\()');
create macro question_key(t) as
    trim(regexp_replace(lower(nfc_normalize(t)), '[^\pL\pM\pN]+', ' ', 'g'), ' ');
"""


def connect() -> duckdb.DuckDBPyConnection:
    """A database of one's own with these functions of text:

    - `fold`: white space folded and trimmed, as `searchr1.data.answers.fold` does;
    - `written`: whether it may be a list or dict written as text, as `may_be_written_value`;
    - `question_key`: letters, marks and digits in lower case, everything else one space. Two
      questions with the same key are the same question.
    """
    connection = duckdb.connect()
    connection.execute("set memory_limit = '600MB'")
    connection.execute(_MACROS)
    return connection
