"""The reward of an answer, and the metrics that stand beside it. Pure functions of text.

Outcome only: right 1.0, well-formed and wrong 0.0, malformed -0.1. Training and evaluation score
by the same function. What always holds, per item: em <= f1, em <= cover_em, em_squad <= f1, and
without a well-formed answer every metric is 0.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from searchr1.answer_line import ZERO_WIDTH
from searchr1.protocol import parse_turn

RIGHT, WRONG, MALFORMED = 1.0, 0.0, -0.1

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_TO_ASCII = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\ufe58", "-")
    | dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u2035\u2039\u203a\u00b4\u02b9\u02bb\u02bc", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u2036\u00ab\u00bb\u301d\u301e\u301f", '"')
)
_ARTICLE_BEFORE_WORD = re.compile(r"\b(?:a|an|the)\s+(?=\w)")
_ARTICLE = re.compile(r"\b(a|an|the)\b")
_CLOSED_ANSWERS = {"yes", "no", "noanswer"}


class Reward(NamedTuple):
    """What one final turn is worth."""

    reward: float
    """1.0 right, 0.0 well-formed and wrong, -0.1 malformed."""
    valid_format: bool
    """Exactly one answer line, and no call beside it."""
    em: bool
    """`exact_match`: what the reward follows."""
    em_squad: bool
    """Exact match by the published SQuAD normaliser: for comparison with the literature."""
    f1: float
    """Word overlap, 0 to 1, see `f1`."""
    cover_em: bool
    """Whether an accepted answer stands somewhere in the answer, see `cover_em`."""
    answer: str | None
    """The answer as written, None if malformed."""


def score(text: str, answers: Iterable[str]) -> Reward:
    """Score the text of a trajectory's final turn against the accepted answers."""
    answers = _as_tuple(answers)
    answer = extract_answer(text)
    if answer is None:
        return Reward(MALFORMED, False, False, False, 0.0, False, None)
    right = exact_match(answer, answers)
    return Reward(
        reward=RIGHT if right else WRONG,
        valid_format=True,
        em=right,
        em_squad=em_squad(answer, answers),
        f1=f1(answer, answers),
        cover_em=cover_em(answer, answers),
        answer=answer,
    )


def extract_answer(text: str) -> str | None:
    """The value of the one answer line of a turn, or None if the turn is anything but an answer:
    no such line, several, or a call (see `searchr1.answer_line` and `searchr1.protocol`)."""
    return parse_turn(text).answer


def normalize(text: str) -> str:
    """`text` as exact match compares it: compatible forms unified (NFKC), dashes and quotes
    ASCII, lower case, ASCII punctuation and zero-width characters deleted, an article dropped
    where a word follows it ("the cat", but not "vitamin A"), white space folded.

    Idempotent. Hyphens are deleted, not replaced, as in the SQuAD rule: "Jean-Luc" is "jeanluc".
    """
    text = ZERO_WIDTH.sub("", text).translate(_TO_ASCII)
    text = unicodedata.normalize("NFKC", text).lower().translate(_TO_ASCII)
    # Once more, because lowering and deleting can bring a letter and its accent together.
    text = unicodedata.normalize("NFKC", text.translate(_PUNCTUATION))
    return " ".join(_ARTICLE_BEFORE_WORD.sub("", text).split())


def normalize_squad(text: str) -> str:
    """The normaliser of the SQuAD evaluation script and of Search-R1's `qa_em.py`, to the
    letter: lower case, ASCII punctuation deleted, every article replaced by a space, white
    space folded."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Iterable[str]) -> bool:
    """Whether `prediction` equals one of `answers` after `normalize`. A prediction or answer of
    which nothing is left then ("?", "...") matches only the same characters."""
    return any(_equal(prediction, answer) for answer in _as_tuple(answers))


def em_squad(prediction: str, answers: Iterable[str]) -> bool:
    """Exact match by `normalize_squad`, as published: Search-R1's `em_check`."""
    normal = normalize_squad(prediction)
    return any(normal == normalize_squad(answer) for answer in _as_tuple(answers))


def cover_em(prediction: str, answers: Iterable[str]) -> bool:
    """Whether `prediction` contains one of `answers` as a substring after normalisation, by
    either normaliser: Search-R1's `subem_check`, except that an answer of which nothing is left
    is covered only by its like."""
    return any(
        _equal(prediction, answer)
        or any((part := normal(answer)) and part in normal(prediction) for normal in _NORMALISERS)
        for answer in _as_tuple(answers)
    )


def f1(prediction: str, answers: Iterable[str]) -> float:
    """Word-level F1 of the best of `answers`, 0 to 1.

    The larger of the values by the two normalisers, and 1.0 for any exact match, so that it is
    never below `exact_match` or `em_squad`. HotpotQA's rule holds: where either side is yes, no
    or noanswer and the other is not the same, there is no partial credit.
    """
    return max((_f1(prediction, answer) for answer in _as_tuple(answers)), default=0.0)


_NORMALISERS: tuple[Callable[[str], str], ...] = (normalize, normalize_squad)


def _equal(prediction: str, answer: str) -> bool:
    ours, theirs = normalize(prediction), normalize(answer)
    if ours or theirs:
        return ours == theirs
    return bool(prediction.strip()) and prediction.strip() == answer.strip()


def _f1(prediction: str, answer: str) -> float:
    if _equal(prediction, answer) or em_squad(prediction, (answer,)):
        return 1.0
    pairs = [(normal(prediction), normal(answer)) for normal in _NORMALISERS]
    if any(text in _CLOSED_ANSWERS for pair in pairs for text in pair):
        return 0.0
    return max(_overlap(ours.split(), theirs.split()) for ours, theirs in pairs)


def _overlap(ours: list[str], theirs: list[str]) -> float:
    common = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * common / (len(ours) + len(theirs)) if common else 0.0


def _as_tuple(answers: Iterable[str]) -> tuple[str, ...]:
    """A single string is one answer, not its characters."""
    return (answers,) if isinstance(answers, str) else tuple(answers)
