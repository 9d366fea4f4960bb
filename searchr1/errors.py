"""What may go wrong, in three classes; the class alone decides what happens next.

Every error that crosses a module boundary of this package is a `SearchR1Error`. The task layer
retries a retryable one with backoff, stops the run at once on a fatal one, and lets anything
else (a defect of the program) surface unchanged.
"""

from enum import StrEnum


class ErrorClass(StrEnum):
    """How an error is treated."""

    RETRYABLE = "retryable"
    """Passing trouble outside of the program: time-outs, 429, 5xx, a broken client, an outage."""
    FATAL = "fatal"
    """Will not pass by itself: a bad key, no balance, an unknown model, wrong settings or data."""
    PROGRAMMING = "programming"
    """A defect of the program; retrying or continuing would hide it."""


class SearchR1Error(Exception):
    """Base of all errors of this package. The message is for a person: what happened, what it
    means, what to do. It never holds a key or the text of a server's answer."""

    error_class = ErrorClass.PROGRAMMING


class RetryableError(SearchR1Error):
    """Passing trouble; the same call may go through later."""

    error_class = ErrorClass.RETRYABLE


class FatalError(SearchR1Error):
    """The run cannot go on until a person changes something."""

    error_class = ErrorClass.FATAL


class SettingsError(FatalError):
    """A setting is wrong or missing. Raised before anything is started or paid for."""


class DataError(FatalError):
    """Prepared data is missing, damaged, or not what the settings ask for."""


def classify(error: BaseException) -> ErrorClass:
    """The class of any exception. Errors of the operating system's network layer are retryable."""
    if isinstance(error, SearchR1Error):
        return error.error_class
    if isinstance(error, (TimeoutError, ConnectionError)):
        return ErrorClass.RETRYABLE
    return ErrorClass.PROGRAMMING
