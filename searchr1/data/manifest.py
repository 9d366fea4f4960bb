"""The manifest of a folder of prepared questions: what was made, from what, and its checksums.

It is written last, so a folder with a manifest is whole; whoever reads a prepared file compares
it with the manifest first.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from searchr1.data.settings import preparation_command
from searchr1.errors import DataError
from searchr1.files import sha256_file, write_text

MANIFEST = "manifest.json"


class FileRecord(BaseModel):
    """A file as it was when the manifest was written."""

    model_config = ConfigDict(frozen=True)

    sha256: str
    bytes: int


class Manifest(BaseModel):
    """What a preparation made, from what, and what it found on the way."""

    model_config = ConfigDict(frozen=True)

    source: str
    origin: str
    """Data set or folder that the raw files came from."""
    revision: str
    """Commit of the data set, or a digest of the raw files' content."""
    settings_digest: str
    """See `searchr1.data.settings.preparation_digest`."""
    raw_files: dict[str, FileRecord]
    files: dict[str, FileRecord]
    """Prepared files by name."""
    rows_read: dict[str, dict[str, int]]
    """Raw rows by split and source, rejected ones included."""
    rows: dict[str, dict[str, int]]
    """Prepared questions by set (train, test, dev70, dev500) and source."""
    rejected: dict[str, int]
    """Raw rows left out, by reason (`searchr1.data.clean.RejectReason`)."""
    overlap: int
    """Training questions whose normalised text is that of an evaluation question."""
    overlap_dropped: bool
    answers_per_question: dict[str, float]
    """min, median, mean and max over all questions."""
    question_characters: dict[str, float]
    """min, median, mean and max length over all questions."""
    warnings: tuple[str, ...]


def write_manifest(data_dir: Path, manifest: Manifest) -> None:
    """Write `manifest.json`, atomically."""
    write_text(data_dir / MANIFEST, manifest.model_dump_json(indent=2) + "\n")


def read_manifest(data_dir: Path) -> Manifest:
    """The manifest of `data_dir`. Raises DataError when there is none or it cannot be read."""
    path = data_dir / MANIFEST
    again = f"Prepare it: {preparation_command(data_dir)}"
    try:
        return Manifest.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"There are no prepared questions in {data_dir}. {again}") from None
    except (ValidationError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} is damaged or of another version of this program. {again}"
        ) from error


def verified_file(data_dir: Path, manifest: Manifest, name: str) -> Path:
    """The path of a prepared file whose bytes are those of the manifest, else DataError."""
    path = data_dir / name
    record = manifest.files.get(name)
    again = f"Prepare it: {preparation_command(data_dir)}"
    if record is None:
        raise DataError(f"{data_dir} was prepared without {name}. {again}")
    if not path.exists():
        raise DataError(f"{path} is missing, though the manifest lists it. {again}")
    if path.stat().st_size != record.bytes or sha256_file(path) != record.sha256:
        raise DataError(
            f"{path} has changed since it was prepared (its checksum differs from the "
            f"manifest's), so results could not be compared with earlier ones. {again}"
        )
    return path
