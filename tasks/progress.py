"""A line about long work every few seconds, in the flow's log."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from prefect import get_run_logger

SECONDS = 10.0


@asynccontextmanager
async def progress(line: Callable[[], str]) -> AsyncIterator[None]:
    """Log `line()` every `SECONDS` while the block runs."""
    logger = get_run_logger()

    async def report() -> None:
        seconds = 0.0
        while True:
            await asyncio.sleep(SECONDS)
            seconds += SECONDS
            logger.info("%s, %.0f s", line(), seconds)

    reporter = asyncio.create_task(report())
    try:
        yield
    finally:
        reporter.cancel()
