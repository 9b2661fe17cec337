"""Measures `evalrun view` beside Inspect's viewer on the same samples, in turn, each time with a new Chromium.

EVALRUN_TEST_INSPECT=PYTHON .venv/bin/python benchmarks/view_beside_inspect.py 10000
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from view_samples import write_rows

from evalrun_cli.inspect_export import export_inspect
from evalrun_results.sample_index.stored_index import build_index
from evalrun_results.stored_run import StoredRun

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from builders.browser import Browser, open_browser
from builders.ports import free_port
from builders.results.view_server import view_served

ROUNDS: Final = 3
WORD: Final = "rare1234"
"""Word in the answers that are searched for: one of every 5,000."""
SENT: Final = (
    "[...performance.getEntriesByType('resource'), ...performance.getEntriesByType('navigation')]"
    ".reduce((sum, each) => sum + each.transferSize, 0)"
)
WHEN: Final = "2026-01-01T00:00:00+00:00"
RUN_INFO: Final = {
    "run": "bench", "created": WHEN, "started_at": WHEN, "ended_at": WHEN, "versions": {"evalrun": "0"},
    "spec": {"model": {"path": "made-up"}},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Page:
    """Steps of a reader to an answer on a page. An `is_` field is a script that is true once its step is done."""

    address: str
    row: str
    """Selector of the rows."""
    search: str
    """Script that puts the focus into the field of the search."""
    query: str
    is_found: str
    is_open: str


def evalrun_page(address: str, count: int, found: int) -> Page:
    """Return the page of `evalrun view`."""
    counter = "(document.querySelector('.tools p')?.textContent ?? '')"
    return Page(
        address=f"{address}#/run/run/samples",
        row=".rows .row",
        search="document.querySelector('input').focus()",
        query=WORD,
        is_found=f"{counter} === '{found:,} of {count:,} samples'",
        is_open=f"location.hash.includes('/sample/') && document.body.innerText.includes({WORD!r})",
    )


def inspect_page(address: str, found: int) -> Page:
    """Return the page of Inspect's viewer, whose search looks into the programs, cut to 1,024 characters."""
    row = "a[role=row]"
    return Page(
        address=f"{address}#/logs/bench.eval",
        row=row,
        search="document.querySelector('.cm-content').focus()",
        query=f'answer_contains("{WORD}")',
        is_found=f"document.querySelectorAll('{row}').length === {found}",
        is_open=f"document.body.innerText.includes('ASSISTANT') && document.body.innerText.includes({WORD!r})",
    )


async def measure(browser: Browser, page: Page) -> dict[str, float]:
    """Return the seconds that a reader waits, and the bytes that the page loads."""
    begun = time.perf_counter()
    await browser.open(page.address)
    await browser.until(f"document.querySelector({page.row!r})")
    first, sent = time.perf_counter() - begun, await browser.run(SENT)
    begun = time.perf_counter()
    await browser.run(page.search)
    await browser.call("Input.insertText", text=page.query)
    await browser.until(page.is_found)
    found = time.perf_counter() - begun
    await browser.run(f"document.querySelector({page.row!r}).click()")
    await browser.until(page.is_open)
    opened = time.perf_counter() - begun
    return {
        "first_row_s": first, "bytes_by_then": sent, "found_s": found, "answer_open_s": opened,
        "bytes_in_all": await browser.run(SENT),
    }  # fmt: skip


@asynccontextmanager
async def inspect_served(python: str, logs: Path) -> AsyncIterator[str]:
    """Serve a directory of logs with Inspect's viewer. Yield the address."""
    port = free_port()
    command = (python, "-m", "inspect_ai", "view", "start", "--log-dir", str(logs), "--port", str(port))
    process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=-2)
    try:
        if process.stdout is None:
            raise SystemExit("the viewer's messages are not read")
        async with asyncio.timeout(300):
            async for line in process.stdout:
                if b"Running on" in line:
                    break
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.kill()
        await process.wait()


async def run_size(python: str, count: int) -> None:
    """Print the medians of both pages over this number of samples, and their ratio."""
    with tempfile.TemporaryDirectory() as scratch:
        run, logs = Path(scratch) / "run", Path(scratch) / "logs"
        write_rows(run, count, has_programs=True)
        (run / "run_info.json").write_text(json.dumps(RUN_INFO))
        begun = time.perf_counter()
        build_index(StoredRun.open(str(run)), run / ".view")
        indexed = time.perf_counter()
        export_inspect(str(run), logs / "bench.eval", None, with_tests=False)
        exported = time.perf_counter()
        # The page reads texts from results.jsonl.
        read = [*(run / ".view").iterdir(), run / "results.jsonl"]
        print(f"{count:,} samples, load {os.getloadavg()[0]:.0f}, {ROUNDS} rounds, medians", flush=True)
        _print("prepared_s", indexed - begun, exported - indexed)
        _print("bytes_on_disk", sum(file.stat().st_size for file in read), (logs / "bench.eval").stat().st_size)
        found = sum(number % 5000 == int(WORD.removeprefix("rare")) for number in range(count))
        figures: dict[str, list[dict[str, float]]] = {"evalrun": [], "inspect": []}
        async with view_served(run) as ours, inspect_served(python, logs) as theirs:
            pages = {"evalrun": evalrun_page(ours, count, found), "inspect": inspect_page(theirs, found)}
            for number in range(ROUNDS):
                for name, page in pages.items():
                    async with open_browser(Path(scratch) / f"{name}-{number}") as browser:
                        await browser.look(1280)
                        figures[name].append(await measure(browser, page))
        for figure in figures["evalrun"][0]:
            _print(figure, *(statistics.median(each[figure] for each in taken) for taken in figures.values()))


def _print(figure: str, ours: float, theirs: float) -> None:
    print(
        f"  {figure:15} evalrun {ours:12,.2f}  inspect {theirs:12,.2f}  inspect / evalrun {theirs / ours:6.2f}",
        flush=True,
    )


if __name__ == "__main__":
    interpreter = os.environ.get("EVALRUN_TEST_INSPECT")
    if not interpreter:
        raise SystemExit("EVALRUN_TEST_INSPECT names no interpreter with inspect-ai: python tools/peers.py install")
    for each in sys.argv[1:] or ["10000"]:
        asyncio.run(run_size(interpreter, int(each)))
