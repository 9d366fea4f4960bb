"""Text of single tokens, for the viewer.

A token of a byte-level tokenizer may be a part of a letter. Such tokens are decoded together: the
first carries the whole letter, the others the empty string, so that the pieces of a sequence
always join to its text.
"""

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from searchr1.tiny_policy import MODEL_NAME, WEIGHTS

_BROKEN = "\ufffd"
_LONGEST_LETTER = 8
"""Tokens that are tried together before a broken one is shown as it is."""

_log = logging.getLogger(__name__)


class Decoder(Protocol):
    """The part of a transformers tokenizer that is used here."""

    def decode(self, token_ids: Any, **options: Any) -> Any:
        """Text of a list of token ids."""
        ...


def local_tokenizer(base_model: str) -> Decoder | None:
    """The tokenizer of a model if it lies on this machine, else None: the report never goes to
    the network for it."""
    from transformers import AutoTokenizer  # slow to import, and only needed for this

    place = str(WEIGHTS) if base_model == MODEL_NAME else base_model
    try:
        return AutoTokenizer.from_pretrained(place, local_files_only=True)
    except Exception as error:  # boundary: a report without token texts is better than no report
        _log.info("no tokenizer of %s on this machine (%s)", base_model, type(error).__name__)
        return None


class TokenTexts:
    """Pieces of text by token, each id decoded once."""

    def __init__(self, tokenizer: Decoder) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, str] = {}

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """One piece for each of `ids`; joined they are the text of the sequence."""
        found: list[str] = []
        place = 0
        while place < len(ids):
            piece = self._piece(ids[place])
            width = 1
            if _BROKEN in piece:
                piece, width = self._letter(ids[place : place + _LONGEST_LETTER], piece)
            found += [piece] + [""] * (width - 1)
            place += width
        return found

    def _piece(self, token: int) -> str:
        if token not in self._known:
            self._known[token] = self._decode([token])
        return self._known[token]

    def _letter(self, ids: Sequence[int], alone: str) -> tuple[str, int]:
        for width in range(2, len(ids) + 1):
            together = self._decode(list(ids[:width]))
            if _BROKEN not in together:
                return together, width
        return alone, 1

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
