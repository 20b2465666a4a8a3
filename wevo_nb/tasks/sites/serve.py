"""One site in one process: `python -m wevo_nb.tasks.sites build SITE FOLDER`, then `... serve SITE FOLDER`.

The clock stands still at NOW and moves one second with each request that may change something,
so that relative dates do not drift and two changes never share a moment. Says `ready PORT` on
standard output, then obeys `reset` on standard input, and ends when that is closed: a server
never outlives the process that started it, unless it was told to `stay`.
"""

from __future__ import annotations

import importlib
import socket
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import time_machine

NOW = datetime(2026, 6, 15, 9, 0, tzinfo=UTC)
SITES = ("tables", "shop", "issues", "code", "docs")
CHANGING = frozenset({"shop", "issues"})  # an instance for every episode at a time


def main(words: list[str]):
    """Builds or serves; the words are those of the command line."""
    task, site, folder = words
    traveller = time_machine.travel(NOW, tick=False).start()
    module = importlib.import_module(f"wevo_nb.tasks.sites.{site}")
    if task == "build":
        module.build(Path(folder))
        return
    application = module.application(Path(folder))
    serve = serve_asgi if site == "tables" else serve_wsgi
    free = threading.Lock()  # one request at a time, and none while the site is reset under it
    print("ready", serve(application, traveller, free), flush=True)
    if task == "stay":
        threading.Event().wait()
    for line in sys.stdin:
        if line.strip() == "reset":
            with free:
                module.reset(Path(folder))
                traveller.move_to(NOW, tick=False)
            print("reset done", flush=True)


def serve_wsgi(application, traveller, free: threading.Lock) -> int:
    """Serves in threads of their own; returns the port."""
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, *_):
            """Says nothing: the log is for errors."""

    def timed(environ, start_response):
        with free:
            if environ["REQUEST_METHOD"] != "GET":
                traveller.shift(1)
            return application(environ, start_response)

    server = make_server("127.0.0.1", 0, timed, threaded=True, request_handler=Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def serve_asgi(application, *_) -> int:
    """Serves in a thread of its own; returns the port. Its application changes nothing."""
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application, log_level="warning", access_log=False))
    threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
    return listening.getsockname()[1]
