"""The one thread that runs torch, shared fairly by training and sampling.

Training work comes in slices (micro-batches), sampling in steps (one token for every row of a
batch). When both wait, they alternate and get about the same time; several training runs take
turns slice by slice.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from searchr1.engine.errors import Code, EngineError
from searchr1.engine.sampler import SampleJob, Sampler

logger = logging.getLogger(__name__)

SAMPLING_TURN = 0.02
"""Seconds of sampling, at least, between two slices of training."""


class _Job:
    """A piece of training work with the future that waits for it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self._loop.create_future()
        self._slices: Generator[Any, Any, Any] | None = None

    def advance(self) -> bool:
        """Run one slice; True when the work is finished, well or badly."""
        if self.future.cancelled():
            return True
        try:
            if self._slices is None:
                result = self._work()
                if not isinstance(result, Generator):
                    self._settle(result, None)
                    return True
                self._slices = result
            next(self._slices)
            return False
        except StopIteration as end:
            self._settle(end.value, None)
        except EngineError as error:
            self._settle(None, error)
        except Exception:  # boundary: one event's failure must not stop the engine
            logger.exception("Training work failed")
            message = "The engine failed; its log says why."
            self._settle(None, EngineError(Code.INTERNAL_ERROR, message))
        return True

    def _settle(self, result: Any, error: Exception | None) -> None:
        def settle() -> None:
            if self.future.done():
                return
            if error is None:
                self.future.set_result(result)
            else:
                self.future.set_exception(error)

        self._loop.call_soon_threadsafe(settle)


class Worker:
    """Start it, give it work from the event loop, stop it."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self._jobs: deque[_Job] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._main, name="torch", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the slice at hand, then end. Work that is left is not done."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout=30)

    async def run(self, work: Callable[[], Any]) -> Any:
        """The result of `work` (a function, or a generator function that yields between slices),
        executed in the torch thread. Raises EngineError."""
        job = _Job(work)
        with self._wake:
            self._jobs.append(job)
            self._wake.notify()
        return await job.future

    def sample(self, job: SampleJob) -> None:
        """Queue a sample request."""
        self.sampler.submit(job)
        with self._wake:
            self._wake.notify()

    def _main(self) -> None:
        while True:
            with self._wake:
                while not (self._jobs or self.sampler.busy or self._closing):
                    self._wake.wait()
                if self._closing:
                    return
                job = self._jobs.popleft() if self._jobs else None
            began = time.monotonic()
            if job is not None and not job.advance():
                with self._wake:
                    self._jobs.append(job)  # behind those of other runs
            now = time.monotonic()
            until = now + max(SAMPLING_TURN, now - began)
            while self.sampler.busy and not self._closing:
                self.sampler.step()
                if self._jobs and time.monotonic() >= until:
                    break
