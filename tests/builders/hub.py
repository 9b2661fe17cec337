"""A double of the Hugging Face hub: the endpoints by which `hf://` URLs find and fetch a dataset's files.

Written by what the published client (huggingface_hub) asks for: nobody could reach the hub itself here.
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_a_token_of_the_tests"

_API = re.compile(r"^/api/datasets/(?P<repo>[^/]+/[^/]+)(?P<rest>/.*)?$")
_FILE = re.compile(r"^/datasets/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)$")
_RANGE = re.compile(r"^bytes=(\d+)-(\d*)$")


@dataclass
class Hub:
    """What it holds, by repository and path, and what it was asked."""

    repositories: Mapping[str, Mapping[str, bytes]]
    gated: frozenset[str] = frozenset()
    """Repositories that want `TOKEN`."""
    url: str = ""
    asked: list[str] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which the published client finds it; that reads them once, at its import."""
        return {"HF_ENDPOINT": self.url, "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    held: Hub


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.held.asked.append(f"{self.command} {path}")
        if asked := _API.match(path) or _FILE.match(path):
            files = self.server.held.repositories.get(asked["repo"])
            allowed = asked["repo"] not in self.server.held.gated or self.headers["Authorization"] == f"Bearer {TOKEN}"
            if files is None or not allowed:
                self._send(401, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
            elif "path" in asked.groupdict():
                self._send_file(files.get(asked["path"]))
            else:
                self._send_listing(asked["repo"], asked["rest"] or "", files)
        else:
            self._send(404, {"error": "no such page"})

    def _send_listing(self, repo: str, rest: str, files: Mapping[str, bytes]) -> None:
        if rest in {"", "/revision/main"}:
            siblings = [{"rfilename": name} for name in files]
            self._send(200, {"id": repo, "sha": "0" * 40, "private": False, "tags": [], "siblings": siblings})
        elif found := re.match(r"^/tree/main(?:/(.*))?$", rest):
            self._send(200, _children(files, found[1] or "", deep="recursive=true" in self.path.lower()))
        else:
            self._send(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})

    def _send_file(self, content: bytes | None) -> None:
        if content is None:
            self._send(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})
            return
        asked = _RANGE.match(self.headers["Range"] or "")
        first = int(asked[1]) if asked else 0
        last = min(int(asked[2] or len(content)) if asked else len(content), len(content) - 1)
        headers = {"Content-Range": f"bytes {first}-{last}/{len(content)}"} if asked else {}
        self._send(206 if asked else 200, content[first : last + 1], headers)

    def _send(self, status: int, body: object, headers: Mapping[str, str] | None = None) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@contextmanager
def hub(repositories: Mapping[str, Mapping[str, bytes]], gated: frozenset[str] = frozenset()) -> Iterator[Hub]:
    held = Hub(repositories, gated)
    server = _Server(("127.0.0.1", 0), _Handler)
    server.held = held
    held.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield held
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _children(files: Mapping[str, bytes], directory: str, *, deep: bool) -> list[dict[str, object]]:
    """Return what a directory of a repository holds, as the hub's tree API lists it."""
    prefix = f"{directory}/" if directory else ""
    entries: dict[str, dict[str, object]] = {}
    for path, content in files.items():
        if not path.startswith(prefix):
            continue
        parts = path.removeprefix(prefix).split("/")
        for depth in range(1, len(parts) if deep else min(2, len(parts))):
            name = prefix + "/".join(parts[:depth])
            entries[name] = {"type": "directory", "path": name, "size": 0, "oid": _oid(name.encode())}
        if deep or len(parts) == 1:
            entries[path] = {"type": "file", "path": path, "size": len(content), "oid": _oid(content)}
    return list(entries.values())


def _oid(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()
