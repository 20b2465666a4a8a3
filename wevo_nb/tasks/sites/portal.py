"""The start page of tasks over two sites: a link to each site that the episode may reach."""

from __future__ import annotations

import html
import http.server
import threading

PAGE = """<!doctype html><html lang="en"><title>Portal</title>
<style>body{{font:18px sans-serif;margin:40px}}li{{margin:12px 0}}</style>
<h1>Portal</h1><p>The sites of this task:</p><ul>{links}</ul></html>"""
TITLES = {
    "tables": "Tables: countries, cities, cars, airports, stocks, weather",
    "shop": "Shop: books and more",
    "issues": "Issues: tickets and wiki",
    "code": "Code: the repository",
    "docs": "Docs: the manual of SQLAlchemy",
}


class Portal:
    """A server in a thread of this process, with a page of links that every episode sets anew."""

    site, alive = "portal", True

    def __init__(self):
        self.page = b""

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(handler):
                found = handler.path == "/"
                page = self.page if found else b"not found"
                handler.send_response(200 if found else 404)
                handler.send_header("Content-Type", "text/html; charset=utf-8")
                handler.send_header("Content-Length", str(len(page)))
                handler.end_headers()
                handler.wfile.write(page)

            def log_message(self, *_):
                """Says nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"

    def show(self, addresses: dict[str, str]):
        """Links to the sites at these addresses."""
        links = (f'<li><a href="http://{at}/">{html.escape(TITLES[site])}</a></li>' for site, at in addresses.items())
        self.page = PAGE.format(links="".join(links)).encode()

    def reset(self):
        self.page = b""

    def close(self):
        self.server.shutdown()
        self.server.server_close()
