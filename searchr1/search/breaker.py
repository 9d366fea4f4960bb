"""A circuit breaker: after failures in a row nothing is sent for a while, then one probe decides.

Closed, everything passes. `failures` failures in a row open the circuit: everything is refused
at once. After `seconds` the next search becomes the probe, and those that come meanwhile wait
for its outcome: a success closes the circuit for all, a failure opens it anew.
"""

import asyncio
import time
from enum import StrEnum


class Admission(StrEnum):
    """What a search may do."""

    NORMAL = "normal"
    """Go on."""
    PROBE = "probe"
    """Go on as the one that tests the service: a single attempt, and settle it in any case."""
    REFUSED = "refused"
    """Do not ask the service."""


class CircuitBreaker:
    """For one service, within one event loop."""

    def __init__(self, failures: int, seconds: float) -> None:
        self._limit = failures
        self._seconds = seconds
        self._failures = 0
        self._open_until: float | None = None
        self._probe: asyncio.Event | None = None

    async def admit(self) -> Admission:
        """Ask before sending; waits while a probe is on its way. Who is told `PROBE` must call
        `settle`."""
        while self._probe is not None:
            await self._probe.wait()
        if self._open_until is None:
            return Admission.NORMAL
        if time.monotonic() < self._open_until:
            return Admission.REFUSED
        self._probe = asyncio.Event()
        return Admission.PROBE

    def settle(self, admission: Admission, alive: bool | None) -> None:
        """Say what came of an admitted search.

        Args:
            alive: whether the service did its part; None if that is not known (cancelled).
        """
        if alive:
            self._failures, self._open_until = 0, None
        elif alive is False:
            self._failures += 1
            first = self._open_until is None and self._failures >= self._limit
            if first or admission is Admission.PROBE:
                self._open_until = time.monotonic() + self._seconds
        if admission is Admission.PROBE and self._probe is not None:
            self._probe.set()
            self._probe = None
