"""Metrics to SwanLab, one row a step.

Mode `offline` writes to the run's directory and makes no connection; `swanlab sync` can send it
later. A run that is taken up again goes on in the same experiment when it is online.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from searchr1.errors import SettingsError


class SwanlabMode(StrEnum):
    """Where metrics go."""

    ONLINE = "online"
    """To the SwanLab service; needs `swanlab login` or SWANLAB_API_KEY."""
    OFFLINE = "offline"
    """To files in the run's directory, for a later `swanlab sync`."""
    DISABLED = "disabled"
    """Nowhere; the ledger and the warehouse have every metric all the same."""


class Tracker:
    """Open as a context manager; `log` takes the metrics of one step."""

    def __init__(
        self,
        mode: SwanlabMode,
        project: str,
        run_name: str,
        run_id: str,
        log_dir: Path,
        config: Mapping[str, Any],
    ) -> None:
        self._mode = mode
        self._options: dict[str, Any] = {
            "mode": str(mode),
            "project": project,
            "name": run_name,
            "log_dir": str(log_dir),
            "config": dict(config),
            "reinit": True,
        }
        if mode is SwanlabMode.ONLINE:
            self._options |= {"id": run_id, "resume": "allow"}

    def __enter__(self) -> "Tracker":
        if self._mode is not SwanlabMode.DISABLED:
            import swanlab  # slow to import, and not needed when disabled

            try:
                swanlab.init(**self._options)
            except Exception as error:  # boundary: a service of a third party, before training
                raise SettingsError(
                    f"SwanLab could not be started ({type(error).__name__}). Run `swanlab login`, "
                    "or choose --swanlab-mode offline or disabled."
                ) from error
        return self

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Send the metrics of a step."""
        if self._mode is not SwanlabMode.DISABLED:
            import swanlab

            swanlab.log(dict(metrics), step=step)

    def __exit__(self, *_: object) -> None:
        if self._mode is not SwanlabMode.DISABLED:
            import swanlab

            swanlab.finish()
