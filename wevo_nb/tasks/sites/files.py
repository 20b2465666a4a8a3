"""Plain files over WSGI, for the site `docs` and for what the pages of other sites are dressed with."""

from __future__ import annotations

import mimetypes
from pathlib import Path

# In seconds. So long because the servers' clock stands still: by the browser's, an answer may be years old.
FOR_EVER = 20 * 365 * 24 * 3600
MISSING = b"<!doctype html><title>Not found</title><h1>Not found</h1><a href='/'>To the first page</a>"


def serve_file(folder: Path, path: str, start_response) -> list[bytes]:
    """The file `path` of `folder`, or a page that says that there is none."""
    file = (folder / path.strip("/")).resolve()
    if not file.is_file() or folder.resolve() not in file.parents:
        start_response("404 Not Found", [("Content-Type", "text/html; charset=utf-8")])
        return [MISSING]
    content = file.read_bytes()
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    headers = [("Content-Type", kind), ("Content-Length", str(len(content))), ("Cache-Control", f"max-age={FOR_EVER}")]
    start_response("200 OK", headers)
    return [content]
