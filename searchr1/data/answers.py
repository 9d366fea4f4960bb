"""Accepted answers out of whatever a data set holds in their place.

Data sets of this family hold lists, numpy arrays, plain strings, lists written as text, nested
dicts, None and NaN, sometimes side by side. One rule reads them all; what is no answer (missing
values, booleans, unknown dicts) is left out and never turned into a word such as "nan".
"""

import ast
import io
import json
import math
import re
import token
import tokenize
from collections.abc import Iterator
from typing import Any

ANSWER_KEYS = (
    "golden_answers",
    "ground_truth",
    "target",
    "answers",
    "answer",
    "value",
    "aliases",
    "text",
)
"""Keys of a dict under which answers are looked for, in this order."""

_IGNORED_WORDS = frozenset(
    {"array", "None", "null", "nan", "NaN", "NaT", "True", "False", "true", "false"}
)
_DTYPE = re.compile(r", *dtype=[^\])]*(?=\))")


def fold(text: str) -> str:
    """`text` with white space folded to single spaces, without it at the ends, and without lone
    surrogates, which no file can hold."""
    return " ".join(text.encode("utf-8", "ignore").decode("utf-8").split())


def clean_answers(value: Any) -> list[str]:
    """The accepted answers in `value`, whatever its shape: in order, folded, each once.

    A string is one answer, unless it is a list or dict written as text (JSON, Python or numpy
    style). Numbers are answers in digits. Never raises; an empty list means there is no answer.
    """
    return list(dict.fromkeys(filter(None, map(fold, _texts(value)))))


def may_be_written_value(text: str) -> bool:
    """Whether the folded `text` may be a list or dict written as text."""
    return text.startswith(("[", "{", "array("))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from _string_texts(value)
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, int):
        yield str(value)
    elif isinstance(value, float):
        if math.isfinite(value):
            yield str(int(value)) if value.is_integer() else str(value)
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "ignore")
    elif isinstance(value, dict):
        for key in ANSWER_KEYS:
            yield from _texts(value.get(key))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, (set, frozenset)):
        yield from sorted(text for item in value for text in _texts(item))
    elif hasattr(value, "tolist"):  # numpy, pandas
        yield from _texts(value.tolist())


def _string_texts(text: str) -> Iterator[str]:
    folded = fold(text)
    if not may_be_written_value(folded):
        yield folded
        return
    for read in (json.loads, _written_list, _written_dict):
        try:
            written = read(folded)
        except (ValueError, SyntaxError, tokenize.TokenError, RecursionError, MemoryError):
            continue
        yield from _texts(written)
        return
    yield folded


def _written_dict(text: str) -> Any:
    value = ast.literal_eval(text)
    if not isinstance(value, (dict, set)):
        raise ValueError("neither a dict nor a set")
    return value


def _written_list(text: str) -> list[Any]:
    """The items of a list in Python or numpy style, flattened. numpy puts no commas between
    items, so every string and number token is an item of its own. Raises when it is no list."""
    text = _DTYPE.sub("", text)
    if not text.endswith(("]", "])")):
        raise ValueError("not a list")
    items: list[Any] = []
    depth = 0
    sign = ""
    for kind, word, *_ in tokenize.generate_tokens(io.StringIO(text).readline):
        if kind == token.OP and word in "[](),-":
            depth += (word in "[(") - (word in "])")
            sign = word if word == "-" else ""
        elif kind == token.STRING:
            items.append(ast.literal_eval(word))
        elif kind == token.NUMBER:
            items.append(ast.literal_eval(sign + word))
            sign = ""
        elif kind == token.NAME and word in _IGNORED_WORDS:
            continue
        elif kind not in (token.NEWLINE, token.NL, token.ENDMARKER):
            raise ValueError(f"no list: {word}")
    if depth:
        raise ValueError("brackets do not match")
    return items
