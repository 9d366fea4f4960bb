"""Data inside an HTML page: inert whatever it says, and small."""

import base64
import json
import zlib
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

CHUNK_CHARACTERS = 250_000
"""JSON that one click may have to unpack."""


def script_json(value: object) -> str:
    """JSON that is safe between `<script type="application/json">` and its end: no character that
    HTML or JavaScript reads as structure is left as it is. NaN is refused (ValueError)."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def compact_json(value: object) -> str:
    """JSON in ASCII without spaces. NaN is refused (ValueError)."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def pack(json_text: str) -> str:
    """Deflated (zlib) and in base64: letters, digits, `+`, `/` and `=` only."""
    return base64.b64encode(zlib.compress(json_text.encode(), 6)).decode()


def chunks(texts: Iterable[tuple[T, str]]) -> Iterator[list[tuple[T, str]]]:
    """Split (key, text) pairs into lists of about CHUNK_CHARACTERS of text."""
    batch: list[tuple[T, str]] = []
    size = 0
    for pair in texts:
        batch.append(pair)
        size += len(pair[1])
        if size >= CHUNK_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
