"""Files that are either whole or absent, and their checksums.

A reader never sees half of a file that was written here: the bytes go to a neighbour with a
temporary name, are flushed to disk, and are renamed over the target.
"""

import errno
import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from searchr1.errors import FatalError

_WHICH = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota is used up",
    errno.EFBIG: "the file would be larger than is allowed (ulimit -f, or the file system)",
}
"""What an error number means to a person."""


class DiskFull(FatalError):
    """No space is left. What was written before is whole."""


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Raise DiskFull when writing `path` fails for lack of space."""
    try:
        yield
    except OSError as error:
        if error.errno in _WHICH:
            raise DiskFull(
                f"no space is left to write {path}: {_WHICH[error.errno]}. Free some, then start "
                "the same command again: it goes on where it stopped."
            ) from error
        raise


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it is flushed and renamed to `path`,
    on any exception it is removed and `path` is left as it was. Raises DiskFull."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with disk_errors(path):
            yield temporary
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` (UTF-8) to `path`, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
