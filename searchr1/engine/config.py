"""What the engine is started with, and the limits and times that hold in it."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Limits:
    """Capacities told to the client when a run is created, and enforced."""

    max_batch_size: int
    """Samples of one training event; sequences of one sample request."""
    max_tokens_per_request: int
    """Tokens of one training event (sum of lengths), and of one prompt."""
    max_seq_len: int
    """Tokens of one training sample, or of a prompt with what is sampled after it."""

    def wire(self) -> dict[str, int]:
        """The protocol's `trainer` and `sampler` objects."""
        return {
            "max_batch_size": self.max_batch_size,
            "max_tokens_per_request": self.max_tokens_per_request,
            "max_seq_len": self.max_seq_len,
        }


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of one engine process."""

    home: Path
    """Checkpoints live below it; several engines may share one."""
    models: dict[str, Path]
    """Served base models: alias to a folder that transformers can load."""
    api_key: str = field(default="local", repr=False)
    device: str = "auto"
    """"auto" (CUDA if there is one, else CPU), or a torch device string."""
    max_batch_size: int = 256
    max_tokens_per_request: int = 131_072
    micro_batch_tokens: int = 0
    """Padded tokens in one training micro-batch: bounds memory, and the time for which sampling
    waits for training. 0 = 1024 on a CPU (fits its caches), 8192 on a GPU."""
    max_rows: int = 128
    """Sequences decoded at once for one set of weights; others wait their turn."""
    cache_bytes: int = 0
    """Key/value cache of one set of weights: sequences wait when it is full, but a single one may
    go over it. 0 = 1 GiB on a CPU, 30% of the free memory on a GPU."""
    merge_bytes: int = 1 << 30
    """float32 models up to this size are sampled from a copy with the LoRA weights merged in
    (faster); larger ones, and all others, through the LoRA layers."""
    idle_weights: int = 1
    """Sets of weights without work that stay in memory for the next request."""


HEARTBEAT_SECONDS = 60
"""How often a training client is asked to show that it is alive."""
TRAINING_IDLE_SECONDS = 900
"""A training run that was not heard of for so long is ended and its memory freed."""
SAMPLING_IDLE_SECONDS = 24 * 3600
"""A sampling run (which sends no heartbeat) that was not used for so long is forgotten."""
RECORD_SECONDS = 24 * 3600
"""How long an ended session or run can still be looked up."""
WEIGHTS_IDLE_SECONDS = 120
"""Sampler weights (and their cache) that were not used for so long leave memory; the next request
loads them again."""
REAP_SECONDS = 30
"""How often the above is checked."""
LONG_POLL_SECONDS = 25
"""Longest time for which the answer to an event's status is held back."""
KEPT_RESULTS = 256
"""Finished events of a run whose result can still be fetched."""
DOWNLOAD_SECONDS = 3600
"""How long a download address works."""
