"""The Retry-After header in all the forms that occur (RFC 9110, section 10.2.3, and worse)."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_SECONDS = re.compile(r"\d+(\.\d*)?", re.ASCII)


def parse_retry_after(value: str | None, now: float | datetime, cap: float) -> float | None:
    """Seconds to wait, within 0..`cap`, or None if the header is absent or makes no sense.

    Reads whole and fractional seconds and HTTP dates (also of the old styles, taken as UTC
    where they name no zone); of several values joined by commas, the first. A date in the past
    is 0; a negative number, `inf`, `nan` and words make no sense.

    Args:
        value: the header as it came.
        now: the present time, as Unix seconds or a datetime with a zone.
        cap: longest wait in seconds.
    """
    first = (value or "").split(",")[0].strip()
    if _SECONDS.fullmatch(first):
        return min(float(first), cap)
    try:
        date = parsedate_to_datetime((value or "").strip())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    present = now.timestamp() if isinstance(now, datetime) else now
    return min(max(date.timestamp() - present, 0.0), cap)
