"""Serves the ledger's samples over HTTP on 127.0.0.1 only: in a pod, to users who may forward a port to the pod.

    GET /recorded?since=SECONDS     [[row, judged, recorded_at], ...] of the verdicts stored since then, oldest first
    GET /results?rows=1,2,3         these rows as they will stand in results.jsonl, one line of JSON each
    GET /prompts?first=N            prompts of the next problems from number N on, one line of JSON each; an empty reply
                                    means that no problem is left

The server stores nothing about its clients: each client remembers how far it has read.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web

from evalrun_aggregator.sample_feed.ledger_batches import LedgerBatches
from evalrun_results.samples import JsonObject
from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
MAX_RECORDED: Final = 50_000
"""Maximum number of verdicts per reply; a client asks again from the time of the last verdict."""
MAX_ROWS: Final = 256
"""Maximum number of rows per reply: some MB, which the aggregator holds in memory while it sends them."""
MAX_PROMPTS: Final = 256
MAX_PROMPT_BYTES: Final = 1 << 20
"""Size from which on a reply gets no further prompt."""
_END_SECONDS: Final = 1.0


class FeedServer:
    """Serves the samples on a port that `start` opens. Each reply is read in a thread, one at a time.

    Args:
        ledger: ledger of the run.
        port: port to listen on; 0: any free port.
        iter_prompts: yields the prompts of the run's problems from a number on.
    """

    def __init__(self, ledger: Path, port: int, iter_prompts: Callable[[int], Iterator[JsonObject]]) -> None:
        self._ledger = ledger
        self._port = port
        self._iter_prompts = iter_prompts
        self._turn = asyncio.Lock()
        self._batches: LedgerBatches | None = None
        app = web.Application()
        app.add_routes(
            [
                web.get("/recorded", self._serve_recorded),
                web.get("/results", self._results),
                web.get("/prompts", self._serve_prompts),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_END_SECONDS)

    async def start(self) -> int:
        """Listen and return the port. Raises OSError if the port is taken."""
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, self._port).start()
        port: int = self._runner.addresses[0][1]
        return port

    async def stop(self) -> None:
        """End running requests, and close the ledger."""
        await self._runner.cleanup()
        if self._batches is not None:
            self._batches.close()

    async def _serve_recorded(self, request: web.Request) -> web.StreamResponse:
        try:
            since = float(request.query.get("since", "0"))
        except ValueError:
            return _make_refusal(400, "since: write seconds, e.g. since=1790000000.5")
        return await self._answer(lambda batches: json.dumps(batches.list_recorded(since, MAX_RECORDED)).encode())

    async def _results(self, request: web.Request) -> web.StreamResponse:
        try:
            rows = [int(row) for row in request.query.get("rows", "").split(",")]
        except ValueError:
            return _make_refusal(400, "rows: write numbers with commas between them, e.g. rows=1,2")
        if len(rows) > MAX_ROWS:
            return _make_refusal(400, f"rows: at most {MAX_ROWS} at once")
        return await self._answer(
            lambda batches: b"".join(msgspec.json.encode(row) + b"\n" for row in batches.result_rows(rows))
        )

    async def _serve_prompts(self, request: web.Request) -> web.StreamResponse:
        first = request.query.get("first", "0")
        if not first.isdecimal():
            return _make_refusal(400, "first: write a number, e.g. first=256")
        async with self._turn:
            body = await asyncio.to_thread(lambda: join_prompts(self._iter_prompts(int(first))))
        return web.Response(body=body, content_type="application/json")

    async def _answer(self, read: Callable[[LedgerBatches], bytes]) -> web.StreamResponse:
        async with self._turn:
            try:
                body = await asyncio.to_thread(lambda: read(self._open_batches()))
            except BadInputError as error:
                logger.warning("samples cannot be shown: %s", error)
                return _make_refusal(503, str(error))
        return web.Response(body=body, content_type="application/json")

    def _open_batches(self) -> LedgerBatches:
        if self._batches is None:
            self._batches = LedgerBatches(self._ledger)
        return self._batches


def join_prompts(prompts: Iterator[JsonObject]) -> bytes:
    """Return the first prompts, one line of JSON each: at least one if there is any, and as many as a reply holds."""
    lines = bytearray()
    for prompt in islice(prompts, MAX_PROMPTS):
        lines += json.dumps(prompt).encode() + b"\n"
        if len(lines) >= MAX_PROMPT_BYTES:
            break
    return bytes(lines)


def _make_refusal(status: int, why: str) -> web.Response:
    return web.json_response({"error": why}, status=status)
