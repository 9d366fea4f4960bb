"""The requests a minute that all processes of a machine keep together.

The log of requests is a small SQLite file, kept by pyrate-limiter under a file lock, in a folder
that every process of the user finds. A request is only sent after it took its place in the log.
"""

import asyncio
import random
import sqlite3
from pathlib import Path

from filelock import Timeout
from pyrate_limiter import Rate, RateItem, SQLiteBucket

from searchr1.errors import SettingsError

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5  # seconds between two looks at the log
_TAKES_BETWEEN_CLEANINGS = 100


class SharedRate:
    """At most `limit` requests in any `seconds`, over all processes that name the same file.

    The bucket is asked without its blocking waits: those would hold up the event loop.
    """

    def __init__(self, path: Path, limit: int, seconds: float = 60.0) -> None:
        """
        Raises:
            SettingsError: the file cannot be opened.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._bucket = SQLiteBucket.init_from_file(
                [Rate(limit, round(seconds * 1000))], db_path=str(path), use_file_lock=True
            )
        except (OSError, sqlite3.Error) as error:
            raise SettingsError(
                f"The rate that processes share cannot be kept in {path} "
                f"({type(error).__name__}): set search_rate_dir to a folder that can be written."
            ) from error
        self._turn = asyncio.Lock()
        self._pause = min(max(seconds / limit / 2, _SHORTEST_PAUSE), _LONGEST_PAUSE)
        self._takes = 0

    async def take(self) -> None:
        """Return when one more request may be sent. Those of one process go in order; between
        processes chance decides."""
        async with self._turn:
            while not self._try():
                await asyncio.sleep(self._pause * random.uniform(0.5, 1.5))

    def close(self) -> None:
        """Close the log."""
        self._bucket.close()

    def _try(self) -> bool:
        lock = self._bucket.lock
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return False
        try:
            now = self._bucket.now()
            if self._takes % _TAKES_BETWEEN_CLEANINGS == 0:
                self._bucket.leak(now)
            taken = self._bucket.put(RateItem("request", now))
            self._takes += taken
            return taken
        finally:
            lock.release()
