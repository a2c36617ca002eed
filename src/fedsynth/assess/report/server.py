"""A small local server for `fedsynth view`: reads runs, changes nothing, and gives files away by key, never by path."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from fedsynth.assess.report.page import asset, policy
from fedsynth.assess.report.run_pages import compare_page, list_page
from fedsynth.assess.report.runs import PAGES, RunSummary, find_runs, summary
from fedsynth.errors import BadInput, FedsynthError

LOCAL = ("127.0.0.1", "localhost", "::1")
_COOKIE = "fedsynth"
# A report may come from somebody else: it runs apart from this server, and can neither ask nor load anything.
_REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclass(frozen=True)
class PageReply:
    """The reply to one request."""

    status: HTTPStatus
    body: bytes
    kind: str = "text/html; charset=utf-8"
    policy: str = "default-src 'none'"


@dataclass(frozen=True)
class ServedFolder:
    """The pages of the runs below one folder, for those who hold the token if there is one."""

    folder: Path
    token: str | None = None

    def answer(self, target: str) -> PageReply:
        """The page at an address; anything else than the known ones is not found."""
        address = urlsplit(target)
        parts = [part for part in address.path.split("/") if part]
        if not parts:
            runs = find_runs(self.folder)
            return _page(list_page([summary(path, key) for key, path in runs.items()], runs))
        if parts == ["runs.json"]:
            listing = {"runs": [run.to_dict() for run in self._summaries()]}
            return PageReply(HTTPStatus.OK, json.dumps(listing).encode(), "application/json")
        if parts == ["compare"]:
            wanted = parse_qs(address.query).get("run", [])
            return _page(compare_page([run for run in self._summaries() if run.key in wanted]))
        if len(parts) == 3 and parts[0] == "run" and parts[2] in PAGES:
            return self._report(parts[1], parts[2])
        return _missing()

    def _summaries(self) -> list[RunSummary]:
        return [summary(path, key) for key, path in find_runs(self.folder).items()]

    def _report(self, key: str, name: str) -> PageReply:
        place = find_runs(self.folder).get(key)
        file = None if place is None else place / name
        if file is None or not file.is_file() or file.is_symlink():
            return _missing()
        problem = summary(file.parent).problem
        if problem:
            return PageReply(HTTPStatus.CONFLICT, problem.encode(), "text/plain; charset=utf-8")
        return PageReply(HTTPStatus.OK, file.read_bytes(), policy=_REPORT_POLICY)

    def admits(self, token: str | None) -> bool:
        """True if there is no token, or this is it."""
        return self.token is None or (
            token is not None and hmac.compare_digest(token.encode(), self.token.encode())
        )


def _page(text: str) -> PageReply:
    scripts = [asset("page.js"), asset("live.js")]
    return PageReply(
        HTTPStatus.OK, text.encode(), policy=policy(scripts, live=True) + "; frame-ancestors 'none'"
    )


def _missing() -> PageReply:
    return PageReply(HTTPStatus.NOT_FOUND, b"There is no such page.", "text/plain; charset=utf-8")


def open_server(folder: Path, host: str, port: int) -> tuple[ThreadingHTTPServer, str]:
    """A server that is bound but not serving yet, and the address to open; a token beyond this machine."""
    find_runs(folder)  # a missing folder is refused before anything is opened
    local = host in LOCAL
    served = ServedFolder(folder, None if local else secrets.token_urlsafe(24))
    try:
        server = ThreadingHTTPServer((host, port), _handler(served, local))
    except OSError as error:
        advice = "choose another --port, or --port 0 for a free one"
        raise BadInput(f"{host}:{port}: cannot be opened ({error.strerror or error}); {advice}") from None
    server.daemon_threads = True
    address = f"http://{host}:{server.server_address[1]}/"
    return server, address if served.token is None else f"{address}?token={served.token}"


def _handler(served: ServedFolder, local: bool) -> type[BaseHTTPRequestHandler]:
    class PageHandler(BaseHTTPRequestHandler):
        server_version = "fedsynth"
        sys_version = ""

        def do_GET(self) -> None:  # noqa: N802
            """Answer a request to read; the only kind there is."""
            self._send(self._answer(), body=True)

        def do_HEAD(self) -> None:  # noqa: N802
            """The same without the page."""
            self._send(self._answer(), body=False)

        def _answer(self) -> PageReply:
            if local and not _is_local(self.headers.get("Host", "")):
                return _refused("This server answers to its own machine only.")
            if not served.admits(_token(self.path, self.headers.get("Cookie", ""))):
                return _refused("Open the address that fedsynth view printed: it holds the token.")
            try:
                return served.answer(self.path)
            except (FedsynthError, OSError, ValueError) as error:
                return PageReply(
                    HTTPStatus.INTERNAL_SERVER_ERROR, str(error).encode(), "text/plain; charset=utf-8"
                )

        def _send(self, answer: PageReply, *, body: bool) -> None:
            self.send_response(answer.status)
            fixed = {"Content-Type": answer.kind, "Content-Length": str(len(answer.body))}
            for name, value in {**_HEADERS, **fixed, "Content-Security-Policy": answer.policy}.items():
                self.send_header(name, value)
            if served.token is not None and answer.status is not HTTPStatus.FORBIDDEN:
                self.send_header("Set-Cookie", f"{_COOKIE}={served.token}; HttpOnly; SameSite=Strict; Path=/")
            self.end_headers()
            if body:
                self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing: a log would hold the token."""

    return PageHandler


def _refused(words: str) -> PageReply:
    return PageReply(HTTPStatus.FORBIDDEN, words.encode(), "text/plain; charset=utf-8")


def _is_local(host: str) -> bool:
    """Whether a browser believes to talk to this machine: a foreign name that points here is refused.

    >>> _is_local("127.0.0.1:8000"), _is_local("localhost"), _is_local("[::1]:80"), _is_local("evil.example:8000")
    (True, True, True, False)
    """
    name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
    return name.strip("[]") in LOCAL


def _token(target: str, cookies: str) -> str | None:
    tokens = parse_qs(urlsplit(target).query).get("token")
    if tokens:
        return tokens[0]
    try:
        kept = SimpleCookie(cookies).get(_COOKIE)
    except CookieError:
        return None
    return kept.value if kept else None


def serve(server: ThreadingHTTPServer, ready: Callable[[], None] | None = None) -> None:
    """Serve until the process is interrupted."""
    if ready:
        ready()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
