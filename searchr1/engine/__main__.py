"""Start the engine: `python -m searchr1.engine --model NAME=FOLDER`.

It listens on 127.0.0.1 only. SIGTERM and SIGINT end it cleanly; with `--exit-with-parent` so does
the end of its standard input, which comes when the process that started it dies in any way.
"""

import argparse
import contextlib
import logging
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

HOST = "127.0.0.1"
LAST_SECONDS = 15
"""From the end of the parent to the end of the engine, whatever it is doing."""


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m searchr1.engine", description="An embedded PyTRIO-compatible engine."
    )
    parser.add_argument("--port", type=int, default=8701, help="0 picks a free one (default 8701)")
    parser.add_argument(
        "--home",
        type=Path,
        default=Path("engine"),
        help="folder for checkpoints (default ./engine)",
    )
    parser.add_argument(
        "--model",
        action="append",
        required=True,
        type=named_folder,
        metavar="NAME=FOLDER",
        help="base model to serve, a folder that transformers can load; may be repeated",
    )
    parser.add_argument(
        "--api-key",
        default=os.environ.get("SEARCHR1_ENGINE_KEY", "local"),
        help="key that clients must show (default: $SEARCHR1_ENGINE_KEY, else 'local')",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, ...")
    parser.add_argument("--threads", type=int, default=0, help="torch threads (default: torch's)")
    parser.add_argument("--port-file", type=Path, help="the URL goes there once we listen")
    parser.add_argument(
        "--exit-with-parent", action="store_true", help="stop when standard input ends"
    )
    return parser.parse_args(argv)


def named_folder(text: str) -> tuple[str, Path]:
    """NAME=FOLDER, with a folder that exists."""
    name, _, folder = text.partition("=")
    if not name or not folder:
        raise argparse.ArgumentTypeError(f"expected NAME=FOLDER, got {text!r}")
    if not (Path(folder) / "config.json").is_file():
        raise argparse.ArgumentTypeError(f"{folder} is not a model folder: no config.json in it")
    return name, Path(folder)


def main(argv: list[str] | None = None) -> int:
    """Serve until told to stop; the exit status."""
    options = arguments(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        import torch
        import uvicorn

        from searchr1.engine.app import create_app
        from searchr1.engine.config import EngineConfig
    except ImportError as error:
        print(
            f"The engine needs {error.name}. Install the extra: pip install 'searchr1[local]'",
            file=sys.stderr,
        )
        return 2
    if options.threads:
        torch.set_num_threads(options.threads)
    config = EngineConfig(
        home=options.home.resolve(),
        models=dict(options.model),
        api_key=options.api_key,
        device=options.device,
    )
    try:
        app = create_app(config)
    except (OSError, ValueError) as error:
        print(f"A model folder cannot be used: {error}", file=sys.stderr)
        return 2

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, options.port))
    except OSError as error:
        print(
            f"Port {options.port} cannot be used ({error.strerror}). Try --port 0.", file=sys.stderr
        )
        return 2
    url = f"http://{HOST}:{listener.getsockname()[1]}"

    class Server(uvicorn.Server):
        """Announces its address when it listens; ends quietly on a signal."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                if options.port_file:
                    write_whole(options.port_file, url)
                print(f"Engine at {url}, models: {', '.join(config.models)}", flush=True)

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            with super().capture_signals():
                yield
                self._captured_signals.clear()  # handled: a clean stop is exit status 0

    server = Server(
        uvicorn.Config(
            app,
            lifespan="on",
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=2,
            timeout_keep_alive=75,  # longer than the clients': they never meet a closing socket
        )
    )
    if options.exit_with_parent:
        threading.Thread(target=stop_at_end_of_input, args=(server,), daemon=True).start()
    server.run(sockets=[listener])
    if options.port_file:
        options.port_file.unlink(missing_ok=True)
    return 0


def stop_at_end_of_input(server: object) -> None:
    """Wait for the end of standard input, then have the server stop."""
    while os.read(0, 4096):
        pass
    server.should_exit = True  # pyright: ignore
    time.sleep(LAST_SECONDS)
    os._exit(0)  # something hangs, and nobody is left to notice


def write_whole(path: Path, text: str) -> None:
    """Write a file that readers see whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.replace(name, path)


if __name__ == "__main__":
    sys.exit(main())
