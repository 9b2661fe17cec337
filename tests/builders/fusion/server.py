"""A double of the stock SandboxFusion server: what its `/run_code` does and fails to do, written from measurements.

It runs programs as the stock one does (isolation `none`): at once, as whoever runs the tests, with its whole
environment, on wall time, without reading their pipes while they run. Trusted programs only.
"""

import asyncio
import base64
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import web

Answer = Callable[[dict[str, Any]], web.Response | None]


class StockDouble:
    """Answers `/v1/ping` and `/run_code`. `interfere` may answer a call in its place; `slots`: as a slot proxy says."""

    def __init__(
        self,
        python: str = sys.executable,
        languages: tuple[str, ...] = ("python", "bash", "cpp"),
        slots: int | None = None,
    ) -> None:
        self.python = python
        self.slots = slots
        self.languages = languages
        self.calls: list[dict[str, Any]] = []
        self.paths: Counter[str] = Counter()
        self.interfere: Answer = lambda body: None
        self.running = 0
        self.max_running = 0

    async def run_code(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.calls.append(body)
        answer = self.interfere(body)
        if answer is not None:
            return answer
        if body["language"] not in self.languages:
            return web.json_response({"status": "SandboxError", "message": repr(body["language"])})
        self.running += 1
        self.max_running = max(self.max_running, self.running)
        try:
            return await asyncio.shield(asyncio.create_task(self._run(body)))  # a client that goes stops nothing
        finally:
            self.running -= 1

    async def _run(self, body: dict[str, Any]) -> web.Response:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
            source = placed(body, directory)
            compiled, run = None, None
            if body["language"] == "cpp":
                compiled = await command(f"g++ -std=c++17 {source} -o test", directory, body.get("compile_timeout", 10))
                if compiled["return_code"] == 0:
                    run = await command("./test", directory, body.get("run_timeout", 10), body.get("stdin"))
            else:
                program = self.python if body["language"] == "python" else "/bin/bash"
                run = await command(f"{program} {source}", directory, body.get("run_timeout", 10), body.get("stdin"))
            results = [result for result in (compiled, run) if result is not None]
            files = fetched(body, directory)
        good = all(result["return_code"] == 0 for result in results)
        return web.json_response(
            {
                "status": "Success" if good else "Failed", "message": "", "compile_result": compiled,
                "run_result": run, "executor_pod_name": None, "files": files,
            }
        )  # fmt: skip


def placed(body: dict[str, Any], directory: str) -> Path:
    for name, content in body.get("files", {}).items():
        Path(directory, name).write_bytes(base64.b64decode(content))
    source = Path(directory, "source.cpp" if body["language"] == "cpp" else "source")
    source.write_text(body["code"])
    return source


def fetched(body: dict[str, Any], directory: str) -> dict[str, str]:
    return {
        name: base64.b64encode(Path(directory, name).read_bytes()).decode()
        for name in body.get("fetch_files", [])
        if Path(directory, name).is_file()
    }


async def command(line: str, directory: str, seconds: float, stdin: str | None = None) -> dict[str, Any]:
    pipe = asyncio.subprocess.PIPE
    started = time.monotonic()
    out_end, out = os.pipe()
    err_end, err = os.pipe()
    process = await asyncio.create_subprocess_shell(
        line, stdin=pipe, stdout=out, stderr=err, cwd=directory, executable="/bin/bash", start_new_session=True
    )
    os.close(out)
    os.close(err)
    assert process.stdin is not None
    if stdin is not None:
        process.stdin.write(stdin.encode())
    process.stdin.close()
    code: int | None = None
    try:
        code = await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError:
        with suppress(ProcessLookupError):  # it ended meanwhile
            os.killpg(process.pid, 9)
        await process.wait()
    texts = []
    for fd in (out_end, err_end):
        os.set_blocking(fd, False)
        try:
            texts.append(os.read(fd, 1 << 20))
        except BlockingIOError:  # something that outlives the program holds the other end
            texts.append(b"")
        os.close(fd)
    return {
        "status": "Finished" if code is not None else "TimeLimitExceeded", "return_code": code,
        "execution_time": time.monotonic() - started, "stdout": decoded(texts[0]), "stderr": decoded(texts[1]),
    }  # fmt: skip


def decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        return f"[DecodeError] {error}"


@asynccontextmanager
async def stock_double(double: StockDouble, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve it in this process; gives the URL."""

    @web.middleware
    async def count(request: web.Request, handler: Any) -> web.StreamResponse:
        double.paths[request.path] += 1
        answer: web.StreamResponse = await handler(request)
        return answer

    async def ping(_: web.Request) -> web.Response:
        return web.json_response("pong")

    async def slots(_: web.Request) -> web.Response:
        return web.json_response({"slots": double.slots, "free": double.slots})

    application = web.Application(client_max_size=1 << 30, middlewares=[count])
    application.router.add_get("/v1/ping", ping)
    application.router.add_post("/run_code", double.run_code)
    if double.slots is not None:
        application.router.add_get("/v1/slots", slots)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
