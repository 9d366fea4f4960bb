"""The one form of an answer: a line `Answer: <short answer>`.

The label starts its line and the value stands on the same line. Markdown emphasis around label
or value, a full-width colon and zero-width characters are presentation and are ignored; nothing
else counts as an answer, and there is no fallback: a reward that guesses what was meant teaches
the policy to spray guesses.
"""

import re

ZERO_WIDTH = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
"""Characters that take no room: joiners, direction marks, soft hyphen, byte-order mark."""

_WHITE_SPACE = "".join(map(chr, filter(lambda point: chr(point).isspace(), range(0x3001))))
_EMPHASIS = "*_`"
_LABEL = re.compile(rf"[{_EMPHASIS}\s]*Answer[{_EMPHASIS}\s]*[:\uff1a]")


def answer_values(text: str) -> list[str]:
    """The values of all non-empty answer lines in `text`, in order, without presentation."""
    values = []
    for line in ZERO_WIDTH.sub("", text).splitlines():
        label = _LABEL.match(line)
        if label and (value := line[label.end() :].strip(_EMPHASIS + _WHITE_SPACE)):
            values.append(value)
    return values
