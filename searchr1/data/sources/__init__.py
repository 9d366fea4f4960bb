"""Where raw questions come from: one file a source, one function each.

A source ends with files on the local disk and a revision that names their content; everything
after that is the same for all of them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from searchr1.data.clean import RawFile
from searchr1.errors import DataError, RetryableError

Progress = Callable[[str], None]
"""Takes one line of text for a person."""


class RawData(NamedTuple):
    """What a source delivers."""

    origin: str
    """Data set or folder, for the manifest."""
    revision: str
    """Commit of the data set, or a digest of the files' content."""
    files: tuple[RawFile, ...]
    corpus: Path | None = None
    """Documents for the local search back end, where the source brings its own."""


class SourceUnavailable(RetryableError):
    """A service cannot be reached, or does not deliver, for now."""

    def __init__(self, service: str, error: BaseException) -> None:
        super().__init__(
            f"{service} cannot be reached or did not deliver ({type(error).__name__}). What was "
            "downloaded is kept and the next try goes on from there. Check the network, or take "
            "the other source: --source hub, --source modelscope, or --source files with files "
            "of your own."
        )


def no_such_data(service: str, dataset: str, revision: str) -> DataError:
    """The error for a data set that the service says it does not have."""
    return DataError(
        f"{service} has no data set {dataset} at revision {revision} that may be read without "
        "permission. Check --revision, or take another --source."
    )
