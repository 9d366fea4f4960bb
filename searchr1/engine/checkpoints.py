"""Checkpoints on disk: one safetensors file each, whole or absent.

    HOME/checkpoints/<run>/training_states/<name>.safetensors     LoRA weights and Adam state
    HOME/checkpoints/<run>/sampler_weights/<name>.safetensors     LoRA weights
    HOME/partial/                                                 files being written

The file's header holds everything else, so nothing has to be kept in step and nothing in memory:
every look-up reads the disk, several engines may share a HOME, and what was saved is there after
a restart. A file is written in `partial/`, flushed, and renamed (or linked, when a file of that
name must not be replaced). Half-written files that a killed engine left are removed later.
"""

import json
import logging
import os
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from searchr1.engine.errors import Code, EngineError
from searchr1.engine.model import LoraSettings

logger = logging.getLogger(__name__)

SCHEME = "trio://"
HEADER_KEY = "checkpoint"
PARTIAL_SECONDS = 600
"""A partial file older than this belongs to no living engine: a write takes seconds."""


class Kind(StrEnum):
    """What a checkpoint can be used for; the value is its place in URI and path."""

    STATE = "training_states"
    """Weights and optimiser: can start a training run, and be sampled from."""
    WEIGHTS = "sampler_weights"
    """Weights only: can be sampled from."""

    @property
    def wire(self) -> str:
        """`checkpoint_type` of the protocol."""
        return "TRAINING" if self is Kind.STATE else "SAMPLER"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a checkpoint's header says. Times are seconds since the epoch."""

    cuid: str
    run: str
    kind: Kind
    name: str
    model_alias: str
    model_id: str
    lora: LoraSettings
    step: int
    """Optimiser steps that the weights have gone through."""
    created: float
    expires: float | None
    visibility: str

    @property
    def uri(self) -> str:
        """trio://<run>/<kind>/<name>"""
        return f"{SCHEME}{self.run}/{self.kind}/{self.name}"


class CheckpointStore:
    """All checkpoints below one HOME. Blocking; safe from any thread and process."""

    def __init__(self, home: Path) -> None:
        self._root = home / "checkpoints"
        self._partial = home / "partial"
        self._root.mkdir(parents=True, exist_ok=True)
        self._partial.mkdir(parents=True, exist_ok=True)
        self.sweep()

    def save(
        self, checkpoint: Checkpoint, tensors: Mapping[str, Tensor], *, overwrite: bool
    ) -> int:
        """Write a checkpoint; returns its size in bytes.

        Raises EngineError (`checkpoint_exists`) when the name is taken and not to be replaced.
        """
        target = self._path(checkpoint.run, checkpoint.kind, checkpoint.name)
        taken = EngineError(
            Code.CHECKPOINT_EXISTS,
            f"{checkpoint.uri} exists already. Save under another name, or with overwrite=True.",
        )
        if not overwrite and self._alive(target):
            raise taken
        header = {**asdict(checkpoint), "lora": checkpoint.lora._asdict()}
        data = save(
            {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()},
            metadata={HEADER_KEY: json.dumps(header)},
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = self._partial / f"{secrets.token_hex(16)}.safetensors"
        try:
            with partial.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if overwrite:
                partial.replace(target)
            else:
                target.hardlink_to(partial)
        except FileExistsError:  # another engine on this HOME was first
            raise taken from None
        finally:
            partial.unlink(missing_ok=True)
        return len(data)

    def find(self, uri: str) -> Checkpoint:
        """The checkpoint at a URI. Raises EngineError (`checkpoint_not_found`)."""
        run, kind, name = self._parts(uri)
        checkpoint = self._alive(self._path(run, kind, name))
        if checkpoint is None:
            raise _missing(uri)
        return checkpoint

    def load(self, uri: str) -> tuple[Checkpoint, dict[str, Tensor]]:
        """A checkpoint with its tensors. Raises EngineError (`checkpoint_not_found`)."""
        checkpoint = self.find(uri)
        try:
            return checkpoint, load_file(self.path(checkpoint))
        except FileNotFoundError:
            raise _missing(uri) from None

    def path(self, checkpoint: Checkpoint) -> Path:
        """The file of a checkpoint."""
        return self._path(checkpoint.run, checkpoint.kind, checkpoint.name)

    def list(self, run: str | None = None) -> list[Checkpoint]:
        """All living checkpoints, or those of one run, oldest first."""
        if run is not None and not re.fullmatch(r"\w+", run):
            return []
        pattern = f"{run or '*'}/*/*.safetensors"
        found = (self._alive(path) for path in self._root.glob(pattern))
        return sorted((c for c in found if c is not None), key=lambda c: (c.created, c.uri))

    def by_cuid(self, cuid: str) -> Checkpoint:
        """Look a checkpoint up by its id. Raises EngineError (`checkpoint_not_found`)."""
        for checkpoint in self.list():
            if checkpoint.cuid == cuid:
                return checkpoint
        raise _missing(cuid)

    def delete(self, checkpoint: Checkpoint) -> None:
        """Remove a checkpoint's file; nothing happens when it is gone already."""
        self.path(checkpoint).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove expired checkpoints and what killed writers left behind."""
        self.list()
        for path in self._partial.iterdir():
            try:
                if time.time() - path.stat().st_mtime > PARTIAL_SECONDS:
                    path.unlink()
            except FileNotFoundError:  # its writer has finished
                continue

    def _alive(self, path: Path) -> Checkpoint | None:
        """The checkpoint in a file; None when there is none. Removes an expired one."""
        try:
            checkpoint = _read_header(path)
        except FileNotFoundError:
            return None
        except (SafetensorError, ValueError, KeyError, TypeError):
            logger.warning("Ignoring %s: not a checkpoint of this engine.", path)
            return None
        if checkpoint.expires is not None and checkpoint.expires <= time.time():
            path.unlink(missing_ok=True)
            return None
        return checkpoint

    def _path(self, run: str, kind: Kind, name: str) -> Path:
        return self._root / run / kind / f"{name}.safetensors"

    def _parts(self, uri: str) -> tuple[str, Kind, str]:
        parts = uri.removeprefix(SCHEME).split("/")
        safe = all(part and not part.startswith(".") and "\\" not in part for part in parts)
        if not uri.startswith(SCHEME) or len(parts) != 3 or not safe or parts[1] not in list(Kind):
            raise _missing(uri)
        return parts[0], Kind(parts[1]), parts[2]


def _missing(which: str) -> EngineError:
    message = f"No checkpoint {which!r} here: never saved, deleted, or expired."
    return EngineError(Code.CHECKPOINT_NOT_FOUND, message)


def _read_header(path: Path) -> Checkpoint:
    """What the header of a file says; the tensors are not read."""
    with safe_open(path, framework="pt") as file:
        fields = json.loads((file.metadata() or {})[HEADER_KEY])
    fields["lora"] = LoraSettings(**fields["lora"])
    fields["kind"] = Kind(fields["kind"])
    return Checkpoint(**fields)
