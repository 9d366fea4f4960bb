"""A data set service on loopback that speaks as much of the Hugging Face hub's and ModelScope's
HTTP interfaces as fetching a data set needs, and misbehaves on request."""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

COMMIT = "c0ffee" + "0" * 34


class HubServer(ThreadingHTTPServer):
    """Serves `files` (name -> content) as one repository under any name."""

    daemon_threads = True

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = dict(files)
        self.cut_after: int | None = None
        """Break the connection after so many bytes of the first download; then behave."""
        self.status: int | None = None
        """Answer everything with this status."""
        self.requests = 0
        self.downloads: list[tuple[str, str | None, int]] = []
        """(file, Range header, bytes sent) of each download."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def hub_server(files: Mapping[str, bytes]) -> Iterator[HubServer]:
    server = HubServer(files)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.answer()

    def answer(self) -> None:
        self.server.requests += 1
        url = urlsplit(self.path)
        if self.server.status is not None:
            missing = {"X-Error-Code": "RevisionNotFound"} if self.server.status == 404 else {}
            self.send(self.server.status, b"SECRET-SERVER-TEXT", missing)
        elif "/resolve/" in url.path:
            self.file(url.path.partition("/resolve/")[2].partition("/")[2])
        elif url.path.endswith("/repo"):  # ModelScope
            self.file(parse_qs(url.query)["FilePath"][0])
        elif "/tree/" in url.path:
            at_root = url.path.rstrip("/").endswith(COMMIT)
            self.json([self.entry(name) for name in self.server.files] if at_root else [])
        elif url.path.startswith("/api/datasets/"):
            names = [{"rfilename": name} for name in self.server.files]
            repository = "/".join(url.path.split("/")[3:5])
            self.json({"id": repository, "sha": COMMIT, "siblings": names, "tags": []})
        else:
            self.send(404, b"{}")

    def entry(self, name: str) -> dict:
        content = self.server.files[name]
        large = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 1}
        oid = hashlib.sha1(content).hexdigest()
        return {"type": "file", "path": name, "size": len(content), "oid": oid, "lfs": large}

    def json(self, value: object) -> None:
        self.send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def file(self, name: str) -> None:
        content = self.server.files.get(name)
        if content is None:
            head = {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}
            return self.send(404, b"Entry not found", head)
        head = {
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X-Repo-Commit": COMMIT,
            "Accept-Ranges": "bytes",
        }
        wanted = self.headers.get("Range")
        start = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted else 0
        if wanted:
            head["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self.send(206 if wanted else 200, content[start:], head, name)
        return None

    def send(
        self,
        status: int,
        body: bytes,
        head: Mapping[str, str] | None = None,
        download: str | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(head or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if download is not None:
            if self.server.cut_after is not None:
                body, self.server.cut_after = body[: self.server.cut_after], None
                self.close_connection = True
            self.server.downloads.append((download, self.headers.get("Range"), len(body)))
        self.wfile.write(body)
