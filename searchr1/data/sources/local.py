"""Raw questions that need no network: one's own files, and the built-in world."""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from searchr1.data.clean import RawFile
from searchr1.data.sources import RawData
from searchr1.data.world import EVALUATION_COUNT, TRAIN_COUNT, Split, build_world, questions
from searchr1.errors import SettingsError
from searchr1.files import sha256_file, write_text

SUFFIXES = (".parquet", ".jsonl")
_SPLITS = {"train": "train", "test": "test", "dev": "test", "validation": "test"}
_SPLIT_WORD = re.compile(r"(?<![a-z0-9])(train|test|dev|validation)(?![a-z0-9])")


def from_files(paths: Sequence[Path]) -> RawData:
    """One's own Parquet or JSONL files, or folders of them.

    A file's split is the word train, test, dev or validation in its name (dev and validation
    count as test). Rows without a source of their own get the name of the file's folder.
    Raises SettingsError when there is no file for a split.
    """
    found = [file for path in paths for file in _expand(path)]
    files = tuple(RawFile(file, _split_of(file), file.resolve().parent.name) for file in found)
    for split in ("train", "test"):
        if not any(file.split == split for file in files):
            raise SettingsError(
                f"--source files needs a file of {split} questions. Give --source-files with "
                f"Parquet or JSONL files that have {split} in their names"
                f"{' (or dev)' if split == 'test' else ''}, or the folder they are in."
            )
    return RawData(", ".join(map(str, paths)), _content_digest(found), files)


def from_world(seed: int, data_dir: Path) -> RawData:
    """The invented world of `seed`, written as raw JSONL files under `data_dir`."""
    world = build_world(seed)
    wanted = {Split.TRAIN: TRAIN_COUNT, Split.EVALUATION: EVALUATION_COUNT}
    files = []
    for split, name in ((Split.TRAIN, "train"), (Split.EVALUATION, "test")):
        path = data_dir / "raw" / f"{name}.jsonl"
        rows = (
            {
                "id": question.question_id.removeprefix(f"world-{question.source}-"),
                "question": question.question,
                "golden_answers": list(question.answers),
                "data_source": question.source,
            }
            for question in questions(world, split, wanted[split], seed=0)
        )
        _write_jsonl(path, rows)
        files.append(RawFile(path, name, "world"))
    corpus = data_dir / "raw" / "corpus.jsonl"
    _write_jsonl(corpus, map(asdict, world.documents))
    paths = [*(file.path for file in files), corpus]
    return RawData(f"world {seed}", _content_digest(paths), tuple(files), corpus)


def _expand(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES)
        return [file for file in found if _SPLIT_WORD.search(file.stem.lower())]
    if not path.exists():
        raise SettingsError(f"--source-files names {path}, which does not exist.")
    if path.suffix not in SUFFIXES:
        raise SettingsError(f"--source-files names {path}, which is neither .parquet nor .jsonl.")
    return [path]


def _split_of(path: Path) -> str:
    if word := _SPLIT_WORD.search(path.stem.lower()):
        return _SPLITS[word.group()]
    raise SettingsError(
        f"{path.name} does not say which questions it holds. Put train, test or dev in its name."
    )


def _content_digest(paths: Iterable[Path]) -> str:
    return hashlib.sha256("\n".join(map(sha256_file, paths)).encode()).hexdigest()


def _write_jsonl(path: Path, rows: Iterable[dict]) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_text(path, text)
