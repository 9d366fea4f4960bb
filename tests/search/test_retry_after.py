"""Every form of Retry-After that services send."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchr1.search import parse_retry_after

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        ("0.493", 0.493),
        ("3.", 3.0),
        ("999999", 60.0),
        ("9" * 5000, 60.0),
        ("2814, 2", 60.0),
        ("12, 2", 12.0),
        ("0.493, 0.2", 0.493),
        (format_datetime(NOW + timedelta(seconds=20), usegmt=True), 20.0),
        (format_datetime(NOW + timedelta(days=2), usegmt=True), 60.0),
        (format_datetime(NOW - timedelta(days=2), usegmt=True), 0.0),
        ("Sunday, 01-Mar-26 12:00:30 GMT", 30.0),
        ("Sun Mar  1 12:00:30 2026", 30.0),
    ],
)
def test_a_meaningful_header_is_the_wait_it_asks_for_up_to_the_cap(value: str, seconds: float):
    assert parse_retry_after(value, NOW, 60.0) == pytest.approx(seconds)
    assert parse_retry_after(value, NOW.timestamp(), 60.0) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "  ",
        "inf",
        "-inf",
        "nan",
        "-5",
        "1e3",
        "soon",
        "²",
        "٣",
        ",",
        "12s",
        "Mon, 99 Foo",
    ],
)
def test_nonsense_is_no_wait_at_all(value: str | None):
    assert parse_retry_after(value, NOW, 60.0) is None


@given(st.text(), st.floats(0, 1e6))
def test_no_text_makes_it_raise_or_leave_its_bounds(value: str, cap: float):
    seconds = parse_retry_after(value, NOW, cap)
    assert seconds is None or 0.0 <= seconds <= cap


@given(
    st.integers(-10, 10),
    st.sampled_from(["{}", "{}.5", "{}, 3", "Sun, 01 Mar 2026 12:00:{:02d} GMT"]),
)
def test_near_forms_stay_within_the_bounds_too(number: int, form: str):
    seconds = parse_retry_after(form.format(number), NOW, 5.0)
    assert seconds is None or 0.0 <= seconds <= 5.0
