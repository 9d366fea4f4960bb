"""From what the web sent to what the policy reads.

Text from the web is data. It is cleaned once, when a search's items are made (`clean_text`);
an observation is rendered from clean items, and no string in it can become a special token or
a piece of chat structure (`neutralise`). An observation is cut to its token budget on whole
items, and an item that alone is too long is shortened, never dropped to nothing.
"""

import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from searchr1.search.base import Fault, SearchResult
from searchr1.trajectory import SearchItem

MARKERS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<tools>",
    "</tools>",
    "<function=",
    "</function>",
    "<parameter=",
    "</parameter>",
)
"""Chat structure of the Qwen family, as a tokenizer or a parser of ours reads it. Callers add
the added and special tokens of their own tokenizer."""

MINIMUM_BUDGET = 16
"""Tokens below which an observation cannot hold anything useful."""

NO_RESULTS = "- no results"

# Only elements of HTML are stripped, so that "x<y and z>w" and <generic> types survive.
_ELEMENTS = (
    "a|abbr|article|aside|b|blockquote|body|br|button|cite|code|dd|del|dfn|div|dl|dt|em|"
    "figcaption|figure|font|footer|h[1-6]|head|header|highlight|hr|html|i|iframe|img|input|ins|"
    "kbd|label|li|link|main|mark|meta|nav|ol|option|p|pre|q|s|samp|script|section|select|small|"
    "span|strike|strong|style|sub|sup|svg|table|tbody|td|tfoot|th|thead|time|title|tr|tt|u|ul|"
    "var|video|wbr"
)
_TAG = re.compile(rf"</?(?:{_ELEMENTS})(?:[\s/][^<>]*)?>|<![^<>]*>", re.IGNORECASE)
_BLOCK = re.compile(r"</?(?:article|blockquote|br|d[dlt]|div|h[1-6]|hr|li|ol|p|section|t[dhr]|ul)")
# Cc controls, Cf format characters (bidi overrides, zero-width, soft hyphen, tags), Cs lone
# surrogates, Co private use, Cn unassigned. Joiners that scripts and emoji need stay.
_DROPPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_JOINERS = frozenset("\u200c\u200d")
_CHARACTERS_A_TOKEN = 32
_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？]")  # noqa: RUF001


def clean_text(text: str) -> str:
    """Plain text on one line: tags stripped, HTML entities resolved once, control characters
    and bidi overrides removed, white space folded, NFC.

    Not idempotent where a page speaks about markup (`&amp;lt;`): apply it exactly once.
    """
    text = _TAG.sub(lambda tag: " " if _BLOCK.match(tag.group().lower()) else "", text)
    text = " ".join(html.unescape(text).split())
    if not text.isascii() or not text.isprintable():
        text = "".join(
            character
            for character in text
            if character in _JOINERS or unicodedata.category(character) not in _DROPPED_CATEGORIES
        )
        text = " ".join(unicodedata.normalize("NFC", text).split())
    return text


def clean_url(url: str) -> str:
    """A web address as it came, or "" if it is anything else (`javascript:`, spaces, …)."""
    fit = url.startswith(("http://", "https://")) and len(url) <= 2_048
    return url if fit and url.isprintable() and " " not in url else ""


def clean_item(item: SearchItem) -> SearchItem:
    """The item with clean title, text and address."""
    return SearchItem(clean_text(item.title), clean_text(item.text), clean_url(item.url))


def neutralise(text: str, markers: Iterable[str] = MARKERS) -> str:
    """`text` in NFC in which none of `markers` occurs: a space goes in after the first character
    of each occurrence, again and again until none is left.

    A marker that is a single character or only white space cannot be broken up and is ignored.
    """
    text = unicodedata.normalize("NFC", text)
    cores = {core for marker in markers if len(core := marker.strip()) > 1}
    while found := [core for core in cores if core in text]:
        for core in found:
            text = text.replace(core, f"{core[0]} {core[1:]}")
    return text


def render_items(items: Sequence[SearchItem], markers: Iterable[str] = ()) -> list[str]:
    """One line an item, `- title: text`, without the title where the text begins with it; a
    single line that says so when there are no items. `MARKERS` and `markers` are harmless in it.
    """
    return [neutralise(_line(item), {*MARKERS, *markers}) for item in items] or [NO_RESULTS]


def _line(item: SearchItem) -> str:
    title, text = " ".join(item.title.split()), " ".join(item.text.split())
    if title and text and not text.casefold().startswith(title.casefold()):
        return f"- {title}: {text}"
    return f"- {text or title}"


class Observation(NamedTuple):
    """The text of an observation, without the chat structure around it."""

    text: str
    tokens: int
    """Length of `text` in tokens."""
    items: int
    """Lines shown, the last of them perhaps shortened."""
    truncated: bool
    """Whether items were left out or shortened."""


def fit_observation(
    lines: Sequence[str], budget_tokens: int, encode: Callable[[str], list[int]]
) -> Observation:
    """The first lines that fit `budget_tokens` together, at least one; a first line that alone
    is too long ends at a sentence, else a word, else anywhere.

    Raises:
        ValueError: the budget is below `MINIMUM_BUDGET`.
    """
    if budget_tokens < MINIMUM_BUDGET:
        raise ValueError(f"an observation needs {MINIMUM_BUDGET} tokens, got {budget_tokens}")
    # No token is longer than this on average, so a huge page is never encoded whole.
    longest = budget_tokens * _CHARACTERS_A_TOKEN
    for shown in range(len(lines), 0, -1):
        text = "\n".join(lines[:shown])
        if len(text) <= longest and (tokens := len(encode(text))) <= budget_tokens:
            return Observation(text, tokens, shown, shown < len(lines))
    text = _shorten(lines[0][:longest], budget_tokens, encode)
    return Observation(text, len(encode(text)), 1, True)


def _shorten(line: str, budget: int, encode: Callable[[str], list[int]]) -> str:
    """The longest useful beginning of `line` within `budget` tokens."""
    low, high = 1, len(line)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(encode(line[:middle])) <= budget else (low, middle - 1)
    text = _at_boundary(line, low)
    while len(text) > 1 and len(encode(text)) > budget:  # a shorter text may take more tokens
        text = text[:-1]
    return text


def _at_boundary(line: str, end: int) -> str:
    """`line[:end]` without the broken sentence or word at its end, if enough is left."""
    if end >= len(line):
        return line
    sentences = [match.end() for match in _SENTENCE_END.finditer(line, 0, end + 1)]
    if sentences and end // 2 <= sentences[-1] <= end:
        return line[: sentences[-1]]
    word = line.rfind(" ", 0, end + 1)
    return line[:word] if word > end // 2 else line[:end]


def observe(
    result: SearchResult,
    budget_tokens: int,
    encode: Callable[[str], list[int]],
    markers: Iterable[str] = (),
) -> Observation:
    """What the policy reads after a search: the items, "no results", or a tool error.

    Raises:
        ValueError: the search failed for the environment's sake; there is nothing to observe.
    """
    if result.error is None:
        lines = render_items(result.items, markers)
    elif result.error.fault is Fault.POLICY:
        lines = [neutralise(f"- error: {result.message}", {*MARKERS, *markers})]
    else:
        raise ValueError(f"a search that failed with {result.error} has no observation")
    return fit_observation(lines, budget_tokens, encode)
