"""Settings of the data layer: where the questions come from and where they are kept.

Flat, so that the settings of a whole run can inherit them and derive flags from them. The
training finds the prepared files by `data_dir` alone.
"""

import hashlib
import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat

from searchr1.data.world import DEMO_SEED, FIRST_PRACTICE_SEED

PREPARATION_VERSION = 1
"""Goes up when the same input would give other files; older preparations are then made anew."""


class DataSource(StrEnum):
    """Where the raw questions come from."""

    HUB = "hub"
    """The published set on the Hugging Face hub."""
    MODELSCOPE = "modelscope"
    """The mirror of the published set on ModelScope, at a pinned revision."""
    FILES = "files"
    """One's own Parquet or JSONL files."""
    WORLD = "world"
    """The built-in invented world."""


def _default_data_dir(validated: dict[str, Any]) -> Path:
    return Path("data") / validated["source"].value


class DataSettings(BaseModel):
    """What to prepare, and where. Only `data_dir` and `source_weights` matter to the training."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    source: DataSource = DataSource.HUB
    """Where the raw questions come from: hub, modelscope, files or world."""
    data_dir: Path = Field(default_factory=_default_data_dir)
    """Folder of the prepared questions; unset = data/ and the name of the source."""
    source_files: tuple[Path, ...] = ()
    """For source files: Parquet or JSONL files, or folders of them, whose names hold train, test
    or dev."""
    revision: str | None = None
    """For sources hub and modelscope: branch, tag or commit to fetch; unset = the hub's main
    branch, and the mirror's commit that this program was written for."""
    drop_overlap: bool = False
    """Remove from the training questions those that are evaluation questions too."""
    max_rejected_share: Annotated[float, Field(ge=0, le=1)] = 0.005
    """Stop when a larger share of the raw rows has to be rejected."""
    jsonl: bool = False
    """Also write every question set as JSONL with id, question, answers and data_source."""
    world_seed: Annotated[int, Field(ge=0, lt=FIRST_PRACTICE_SEED)] = DEMO_SEED
    """For source world: which invented world to build."""
    source_weights: dict[str, PositiveFloat] = {}
    """Share of each source in the training batches, for example {"nq": 1, "hotpotqa": 2}; a
    source that is not named is not drawn. Empty = every question equally often."""


_PREPARED = ("source", "source_files", "revision", "drop_overlap", "jsonl", "world_seed")

PREPARATION_FIELDS = frozenset(DataSettings.model_fields) - {"source_weights"}
"""Settings of the preparation alone. What it made is known by its checksums."""


def preparation_digest(settings: DataSettings) -> str:
    """Hex digest of what decides the content of the prepared files, the raw files apart."""
    chosen = settings.model_dump(mode="json", include=set(_PREPARED))
    text = json.dumps({"version": PREPARATION_VERSION, **chosen}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def preparation_command(data_dir: Path) -> str:
    """The shell command that prepares `data_dir`, for messages to a person."""
    known = data_dir.name in [source.value for source in DataSource]
    source = data_dir.name if known else "SOURCE"
    return f"python flows/prepare_flow.py --source {source} --data-dir {data_dir}"
