"""What the model servers of the tests have in common: a JSON answer, and silence."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler


class JsonHandler(BaseHTTPRequestHandler):
    def answer(self, status: int, value: object):
        self.send(status, json.dumps(value).encode())

    def send(self, status: int, data: bytes, kind: str = "application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass
