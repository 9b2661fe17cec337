"""The HTTP server of `evalrun view`. It decides first who may read, and changes no run."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import BinaryIO, Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from evalrun_cli.viewer.access import MAX_FORM_BYTES, Access
from evalrun_cli.viewer.run_view import ShownRun
from evalrun_results.samples import JsonObject
from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Only the page's own scripts run, nothing is loaded from elsewhere, and no text becomes markup."""
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}
TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".json": "application/json"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Runs = Callable[[], Mapping[str, ShownRun]]
"""The runs by id, as they are now."""


def web_files() -> dict[str, bytes]:
    """Return the page's own files by name."""
    directory = files("evalrun_cli.viewer").joinpath("web")
    return {file.name: file.read_bytes() for file in directory.iterdir() if Path(file.name).suffix in TYPES}


def build_app(runs: Runs, access: Access) -> web.Application:
    """Return the application.

    Args:
        runs: returns the shown runs; called in threads.
        access: decides who may read them.
    """
    page = _Pages(runs)

    @web.middleware
    async def guard_request(request: web.Request, handler: Handler) -> web.StreamResponse:
        response: web.StreamResponse | None = access.refusal(request)
        if response is None:
            try:
                response = await handler(request)
            except BadInputError as error:
                response = web.json_response({"error": str(error)}, status=422)
            except web.HTTPException as error:
                response = web.Response(status=error.status, text=error.text)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    app = web.Application(middlewares=[guard_request], client_max_size=MAX_FORM_BYTES)
    app.add_routes(
        [
            *access.routes(),
            web.get(f"{access.prefix}/", page.index),
            web.get(f"{access.prefix}/app/{{file}}", page.serve_file),
            web.get(f"{access.prefix}/data/runs.json", page.runs),
            web.get(f"{access.prefix}/data/{{run}}/run.json", page.run),
            web.get(f"{access.prefix}/data/{{run}}/{{file}}", page.run_file),
            web.get("/{rest:.*}", page.serve_nothing),
        ]
    )
    return app


class _OpenFileResponse(web.FileResponse):
    """Sends an open file, or the requested range of it. The file is not opened by its path, which may lead elsewhere by
    now."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(f"/proc/self/fd/{file.fileno()}", headers={"Content-Type": "application/octet-stream"})
        self._file = file

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        try:
            return await super().prepare(request)
        finally:
            self._file.close()


class _Pages:
    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._files = web_files()

    async def index(self, request: web.Request) -> web.StreamResponse:
        return self._serve_own("index.html")

    async def serve_file(self, request: web.Request) -> web.StreamResponse:
        return self._serve_own(request.match_info["file"])

    def _serve_own(self, name: str) -> web.StreamResponse:
        content = self._files.get(name)
        if content is None:
            return _answer_missing()
        return web.Response(body=content, content_type=TYPES[Path(name).suffix], charset="utf-8")

    async def runs(self, request: web.Request) -> web.StreamResponse:
        return await asyncio.to_thread(lambda: _answer(encode_runs(self._runs())))

    async def run(self, request: web.Request) -> web.StreamResponse:
        view = await self._find_run(request)
        return (
            _answer_missing() if view is None else await asyncio.to_thread(lambda: _answer(_encode(view.description())))
        )

    async def run_file(self, request: web.Request) -> web.StreamResponse:
        view = await self._find_run(request)
        file = None if view is None else await asyncio.to_thread(view.open_file, request.match_info["file"])
        return _answer_missing() if file is None else _OpenFileResponse(file)

    async def _find_run(self, request: web.Request) -> ShownRun | None:
        runs = await asyncio.to_thread(self._runs)
        return runs.get(request.match_info["run"])

    async def serve_nothing(self, request: web.Request) -> web.StreamResponse:
        return _answer_missing()


def encode_runs(runs: Mapping[str, ShownRun], *, are_places_shown: bool = True) -> bytes:
    """Return the content of `runs.json`. A run that cannot be read is listed with the reason."""
    listed: list[bytes] = []
    for view in runs.values():
        shown: JsonObject = {} if are_places_shown else {"place": ""}
        # Each entry is encoded by itself, so that a run whose entry cannot be encoded does not break the whole list.
        try:
            listed.append(_encode({**view.headline(), **shown}))
        except BadInputError as error:
            told: JsonObject = {"id": view.run_id, "place": view.place, "live": False, "error": str(error)}
            listed.append(_encode({**told, **shown}))
    return b'{"runs": [' + b", ".join(listed) + b"]}"


def _encode(content: JsonObject) -> bytes:
    """Return content as JSON. Raises BadInputError if a run's outputs contain values that JSON lacks."""
    try:
        return json.dumps(content, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"its outputs cannot be shown: {error}") from error


def _answer(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _answer_missing() -> web.Response:
    return web.json_response({"error": "no such page"}, status=404)
