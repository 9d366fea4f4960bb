"""What stands before a server and makes it seem away."""

import asyncio
import contextlib
import threading
from urllib.parse import urlsplit


class Relay:
    """Stands before a server; while it is `away`, connections are closed and refused, and while
    it is `silent` they are open and nothing gets through."""

    def __init__(self, url: str) -> None:
        self._to = urlsplit(url)
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self.port = 0

    def start(self) -> None:
        self._flowing.set()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.listen()

    def listen(self) -> None:
        self._call(self._listen())

    def away(self) -> None:
        self._call(self._close())

    def silent(self, silent: bool) -> None:
        self._loop.call_soon_threadsafe(self._flowing.clear if silent else self._flowing.set)

    def _call(self, coroutine: object) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)  # type: ignore[arg-type]

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            answers, requests = await asyncio.open_connection(self._to.hostname, self._to.port)
            await asyncio.gather(self._pump(reader, requests), self._pump(answers, writer))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        self._open.add(sink)
        try:
            while data := await source.read(1 << 16):
                await self._flowing.wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            self._open.discard(sink)
            sink.close()
