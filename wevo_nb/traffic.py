"""What happens in a context beside the page that is seen: requests, dialogs, new tabs, downloads, crashes.

Used by browser.py: `begin()` before an action, then the fields tell what has happened since.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, Dialog, Download, Error, Page, Request, Response, Route, WebSocketRoute

from wevo_nb.observation import quote

AWAITED = frozenset("document xhr fetch script stylesheet".split())  # kinds of request that change what is seen
SHOWN_AS_PAGE = ("text/", "application/xhtml", "application/xml", "image/", "application/json")


class Traffic:
    """Listens to one context."""

    def __init__(self, context: BrowserContext, dialogs: str):
        self.answer = dialogs
        self.crashed = False
        self.pending: set[Request] = set()
        self.begin()
        context.on("page", self._page)
        context.on("dialog", self._dialog)
        context.on("request", self._request)
        context.on("response", self._response)
        context.on("requestfinished", self._ended)
        context.on("requestfailed", self._ended)

    def begin(self):
        """Forgets what has happened; requests that are under way are not waited for again."""
        self.before = set(self.pending)
        self.opened: list[Page] = []
        self.dialogs: list[str] = []
        self.blocked: set[str] = set()
        self.download = ""
        self.document = ""  # type of what was opened, where it is no page
        self.navigated = False
        self.status: int | None = None  # of the last page that came
        self.failure = ""  # why the last page did not come
        self.redirects: list[
            tuple[str, bool]
        ] = []  # where redirects led, and whether the page itself; no route is asked

    def waiting(self) -> bool:
        """Whether something that was asked for since `begin` is still to come."""
        return bool(self.pending - self.before)

    def page_on_its_way(self) -> bool:
        """Whether a page was asked for whose answer has not begun."""
        return any(request.is_navigation_request() and _of_page(request) for request in self.pending)

    async def refuse(self, route: Route):
        self.blocked.add(urlsplit(route.request.url).netloc.rpartition("@")[2])
        await route.abort("aborted")  # of a link: the page stays where it is

    def refuse_socket(self, socket: WebSocketRoute):
        self.blocked.add(urlsplit(socket.url).netloc.rpartition("@")[2])
        return socket.close()

    def _page(self, page: Page):
        if len(page.context.pages) > 1:
            self.opened.append(page)
        page.on("crash", self._crash)
        page.on("close", self._closed)
        page.on("download", self._download)
        page.on("filechooser", lambda _: self.dialogs.append("a file chooser, which was cancelled"))
        page.on("framenavigated", lambda frame: self._navigation(frame.parent_frame is None and frame.url))

    def _navigation(self, url: str | bool):
        self.navigated = self.navigated or bool(url and url != "about:blank")

    def _closed(self, page: Page):
        self.pending = {request for request in self.pending if _page_of(request) is not page}

    def _crash(self, _):
        self.crashed = True

    async def _dialog(self, dialog: Dialog):
        leave = dialog.type == "beforeunload"
        accept = leave or self.answer == "accept"
        message = f" {quote(dialog.message[:200])}" if dialog.message else ""
        self.dialogs.append(f"{dialog.type}{message}, {'accepted' if accept else 'dismissed'}")
        await (
            dialog.accept(dialog.default_value)
            if accept and dialog.type == "prompt"
            else dialog.accept()
            if accept
            else dialog.dismiss()
        )

    async def _download(self, download: Download):
        self.download = download.suggested_filename
        await download.cancel()

    def _request(self, request: Request):
        if request.resource_type in AWAITED:
            self.pending.add(request)
        if request.redirected_from is not None:
            self.redirects.append((request.url, request.is_navigation_request() and _of_page(request)))

    def _ended(self, request: Request):
        self.pending.discard(request)
        if request.failure and request.is_navigation_request():
            self.failure = request.failure

    def _response(self, response: Response):
        if response.request.resource_type != "document" or not _of_page(response.request):
            return
        self.status = response.status
        kind = response.headers.get("content-type", "text/html").partition(";")[0].strip()
        self.document = "" if kind.startswith(SHOWN_AS_PAGE) else kind


def _page_of(request: Request) -> Page | None:
    try:
        return request.frame.page
    except Error:  # of a tab that is being opened
        return None


def _of_page(request: Request) -> bool:
    """Whether a navigation is the page's own, not that of a frame in it."""
    try:
        return request.frame.parent_frame is None
    except Error:  # of a tab that is being opened
        return True
