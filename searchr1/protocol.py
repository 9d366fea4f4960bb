"""What the policy is told, and how one turn of its text is read.

A turn is a call, an answer, or invalid, and the rules are strict where leniency would let the
text and what was executed drift apart: one well-formed call and nothing after it; no answer line
beside a call; no piece of the protocol outside of a call. Reasoning (`<think>` spans) is set
aside first, so that a call or an answer rehearsed there neither runs nor counts.

Nothing in the text may raise: whatever the policy writes is one of the three kinds.
"""

import json
import re
import unicodedata
from enum import StrEnum
from typing import Any, NamedTuple

from searchr1.answer_line import ZERO_WIDTH, answer_values

SYSTEM_PROMPT = """\
You answer factual questions. A search tool is at hand: it takes one short query and returns a \
few passages.

How to work:
- Search whenever you are not certain of a fact. Do not guess what you can look up.
- Make at most one search call in a turn and end the turn right after it. The passages come back \
in the next turn; read them before you decide what to do.
- When a question takes several facts, look them up one after another: first find the name you \
are missing, then search for what is asked about it.
- When the passages do not help, search again in other words.

When you know the answer, write no further call. End with exactly one line of this form, as short \
as the question allows (a name, a date, a number, yes or no):
Answer: <short answer>"""
"""Default instructions, written for Qwen3.5; the chat template adds the tool's schema and the
form of a call."""

SEARCH_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search for passages that help to answer the question.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "A short, self-contained query."}
            },
            "required": ["query"],
        },
    },
}
"""The tool as chat templates expect it (JSON schema of one function)."""


class TurnKind(StrEnum):
    """What a turn is."""

    CALL = "call"
    """Exactly one well-formed search call that ends the turn."""
    ANSWER = "answer"
    """No call. Whether it holds an answer is for `Turn.answer` to say."""
    INVALID = "invalid"
    """A broken, nested or second call, text after a call, an answer beside a call, or a piece
    of the protocol where none belongs."""


class Turn(NamedTuple):
    """One assistant turn, read."""

    kind: TurnKind
    query: str | None = None
    """What to search for: set for a call only, never blank, free of control characters."""
    answer: str | None = None
    """The value of the one answer line: set for an answer only, None if there is none or more
    than one."""


_INVALID = Turn(TurnKind.INVALID)
_END_OF_TURN = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "</s>")
_MARKER = re.compile(
    r"</?think>|</?tool_call\b|</?tool_response\b"
    r"|<function=|</function>|<parameter=|</parameter>|<\|[a-z_]+\|>"
)
_XML_CALL = re.compile(
    r"<function=search>\s*<parameter=query>(.*?)</parameter>\s*</function>\s*</tool_call>\s*",
    re.DOTALL,
)


def parse_turn(text: str) -> Turn:
    """Read one assistant turn. A trailing end-of-turn token is ignored, whether or not the
    sampler returned it."""
    text = _without_end_of_turn(text)
    turn = _read(text)
    if turn.kind is TurnKind.INVALID:
        # A `</think>` without an opening one closes reasoning that the prompt has opened.
        before, closing, after = text.partition("</think>")
        if closing and "<think>" not in before:
            return _read(after)
    return turn


def _without_end_of_turn(text: str) -> str:
    while True:
        text = text.rstrip()
        for token in _END_OF_TURN:
            if text.endswith(token):
                text = text.removesuffix(token)
                break
        else:
            return text


def _read(text: str) -> Turn:
    """Walk over the markers from the left; the first that is not reasoning decides."""
    visible = ""
    position = 0
    while marker := _MARKER.search(text, position):
        visible += text[position : marker.start()]
        if marker.group() != "<think>":
            query = _read_call(text[marker.start() :])
            if query is None or answer_values(visible):
                return _INVALID
            return Turn(TurnKind.CALL, query=query)
        end = text.find("</think>", marker.end())
        if end < 0:
            # Reasoning that never closes: what it holds was not said, but a call in it is broken.
            reasoning = text[marker.end() :]
            if any(found != "<think>" for found in _MARKER.findall(reasoning)):
                return _INVALID
            return _answer(visible)
        position = end + len("</think>")
    return _answer(visible + text[position:])


def _answer(visible: str) -> Turn:
    values = answer_values(visible)
    return Turn(TurnKind.ANSWER, answer=values[0] if len(values) == 1 else None)


def _read_call(text: str) -> str | None:
    """The query of the one well-formed call that `text` consists of, else None."""
    opening = "<tool_call>"
    if not text.startswith(opening):
        return None
    body = text[len(opening) :].lstrip()
    query = _json_query(body) if body.startswith("{") else _xml_query(body)
    return None if query is None else _clean_query(query)


def _xml_query(body: str) -> str | None:
    """Qwen3.5's style. Comparison signs in a query are text; pieces of the protocol are not."""
    match = _XML_CALL.fullmatch(body)
    if match is None or _MARKER.search(match[1]):
        return None
    return match[1]


def _json_query(body: str) -> str | None:
    """Qwen2.5's and Qwen3's style. The object is decoded before the end tag is looked for,
    because the query may hold the text of that tag."""
    try:
        call, end = json.JSONDecoder().raw_decode(body)
    except (ValueError, RecursionError):  # broken, or nested thousands deep
        return None
    if body[end:].strip() != "</tool_call>":
        return None
    match call:
        case {"name": "search", "arguments": {"query": str(query), **other_arguments}, **other}:
            return None if other_arguments or other else query
    return None


def _clean_query(query: str) -> str | None:
    """`query` without control characters and lone surrogates (JSON escapes can spell both, and
    neither survives a request or a file), or None if nothing readable is left."""
    query = "".join(
        " " if unicodedata.category(character) in ("Cc", "Cs") else character for character in query
    ).strip()
    return query if ZERO_WIDTH.sub("", query).strip() else None
