"""Reading a corpus: JSON Lines (also gzipped) or Parquet, one document a row.

Columns: `document_id`, `id` or `_id`; `title`; `text` or `contents`. The `contents` of the
Search-R1 corpora (`"Title"\\ntext`) are taken apart where there is no title.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from searchr1.errors import DataError

_PARQUET_ROWS = 8_192


class Document(NamedTuple):
    """One document of a corpus."""

    document_id: str
    title: str
    text: str


def read_corpus(path: Path) -> Iterator[Document]:
    """The documents of a corpus file that have a title or text, in the file's order.

    A document without an id is named by its row number.

    Raises:
        DataError: the file is missing or cannot be read as what its name says.
    """
    if not path.is_file():
        raise DataError(f"There is no corpus file {path}; set search_corpus to an existing one.")
    rows = _parquet_rows(path) if path.suffix == ".parquet" else _json_rows(path)
    for number, row in enumerate(rows):
        document = _document(row, number)
        if document.title or document.text:
            yield document


def split_contents(contents: str) -> tuple[str, str]:
    """Title and text of `"Title"\\ntext`; the title is empty if there is a single line."""
    first, newline, rest = contents.partition("\n")
    return (first.strip().strip('"'), rest) if newline else ("", contents)


def _document(row: dict[str, Any], number: int) -> Document:
    names = ("document_id", "id", "_id")
    document_id = next((row[name] for name in names if row.get(name) is not None), None)
    title, text = _text(row.get("title")), _text(row.get("text"))
    if not text and (contents := _text(row.get("contents"))):
        title, text = (title, contents) if title else split_contents(contents)
    return Document(f"{number:09d}" if document_id is None else str(document_id), title, text)


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _json_rows(path: Path) -> Iterator[dict[str, Any]]:
    opener = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            for line in file:
                number += 1
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise ValueError("not an object")
                    yield row
    except (ValueError, OSError, EOFError) as error:
        raise DataError(
            f"The corpus {path} cannot be read near line {number}: each line must be a JSON "
            "object in UTF-8 with id, title and text."
        ) from error


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_PARQUET_ROWS):
                yield from batch.to_pylist()
    except (ValueError, OSError) as error:  # pyarrow's errors are subclasses of these
        raise DataError(f"The corpus {path} is not a readable Parquet file.") from error
