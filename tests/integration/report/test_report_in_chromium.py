"""The report in a real browser, at two widths and in dark mode: nothing sticks out, nothing runs.

Skipped where no Chromium is installed. The browser measures: a probe page frames the report's own elements and writes
down what is wider than the window.
"""

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from builders.results.samples import sample_result, verdict, with_changes
from builders.results.stored_runs import samples_of, verdicts_of, write_run

from evalrun_cli.comparisons.page import comparison_page
from evalrun_cli.comparisons.views import run_facts
from evalrun_results.comparisons.comparison import compare_runs

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path")

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update",
    "--disable-background-networking", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
PROBE = """
<script>
  document.querySelectorAll("details").forEach(each => each.open = true);
  const wide = document.documentElement.clientWidth;
  const scrolls = node => node
    && (["auto", "scroll"].includes(getComputedStyle(node).overflowX) || scrolls(node.parentElement));
  const out = [...document.body.querySelectorAll("*")].filter(each =>
    each.getBoundingClientRect().right > wide + 1 && !scrolls(each.parentElement));
  const told = {wide, scroll: document.documentElement.scrollWidth, owned: !!window.owned,
                out: out.slice(0, 5).map(each => each.outerHTML.slice(0, 120)),
                ink: getComputedStyle(document.body).backgroundColor};
  document.title = "probe " + JSON.stringify(told);
</script>
"""
EVIL = "<script>window.owned=1</script><img src=x onerror='window.owned=1'>" + "W" * 300


def a_wide_run(directory: Path) -> Path:
    """Write a run with all that could stick out: long names, long lines, every status, several datasets."""
    rows = [
        *samples_of([(10, 3), (10, 7), (10, 10)] * 5, dataset="many"),
        *verdicts_of([None] * 3, dataset=f"<script>window.owned=1</script>{'W' * 60}"),
    ]
    for place, status in enumerate(["success", "wrong_answer", "runtime_error", "compile_error", "timeout"] * 4):
        made = verdict([status, "success"])
        made.disagreeing_comparators.append("sandbox-fusion")
        made.tests[0].stdout.text = EVIL
        made.tests[0].reason = EVIL
        answer = f"{EVIL}\n```python\nx = '{EVIL}'\n```"
        rows.append(with_changes(sample_result(f"{place}/{EVIL}", cpu_time=3.0**place), verdict=made, response=answer))
    info = {"run": "phase0 " + "x" * 90, "spec": {"model": {"path": EVIL}}, "versions": {EVIL: EVIL}}
    return write_run(directory, rows, **info) / "report.html"


@pytest.mark.parametrize(("width", "scheme"), [(1200, 1), (500, 0)], ids=["wide and light", "narrow and dark"])
def test_report_fits_the_window_and_runs_no_script(tmp_path: Path, width: int, scheme: int) -> None:
    report = a_wide_run(tmp_path / "run")
    content = report.read_text(encoding="utf-8")
    assert content.count("http-equiv") == 1
    # The probe is a script, and without the policy an escape that was missed would show: so the policy goes.
    probe = tmp_path / "probe.html"
    probe.write_text(re.sub(r"<meta http-equiv[^>]*>", "", content).replace("</body>", f"{PROBE}</body>"))
    command = [
        str(CHROMIUM), *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900",
        f"--blink-settings=preferredColorScheme={scheme}", "--virtual-time-budget=2000", "--dump-dom", probe.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=True)
    title = re.search(r"<title>probe (.*?)</title>", done.stdout, re.DOTALL)
    assert title is not None, done.stdout[:500]
    told = html.unescape(title[1])
    assert '"out":[]' in told
    assert '"owned":false' in told
    wide, scroll = (int(re.findall(rf'"{name}":(\d+)', told)[0]) for name in ("wide", "scroll"))
    assert scroll <= wide == width
    assert ('"ink":"rgb(255, 255, 255)"' in told) is (scheme == 1)


WORDS = """
<script>
  document.querySelectorAll("details").forEach(each => each.open = true);
  const broken = [];
  for (const cell of document.querySelectorAll("th, td:first-child, td.right")) {
    if (cell.querySelector(".mono")) continue;
    const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      for (const word of node.data.matchAll(/[A-Za-z0-9@.]+/g)) {
        const range = document.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        const lines = new Set([...range.getClientRects()].map(each => Math.round(each.top)));
        if (lines.size > 1) broken.push(word[0]);
      }
    }
  }
  document.title = "words " + JSON.stringify(broken);
</script>
"""


def two_runs(directory: Path) -> Path:
    """Write two runs; gives their directory."""
    for name, solved in (("a", 20), ("b", 30)):
        rows = verdicts_of([True] * solved + [False] * (40 - solved), dataset="codecontests_valid")
        model = {"model": {"path": "Qwen/Qwen2.5-Coder-7B-Instruct"}}
        sources = {"codecontests_valid": {"source": "/data/" + "x" * 80, "records_sha256": "a" * 64}}
        write_run(
            directory / name, rows, run=f"phase0-{name}", spec=model, datasets=sources, versions={"v" * 60: "1.0"}
        )
    return directory


@pytest.mark.parametrize("width", [1280, 420])
@pytest.mark.parametrize("page", ["report", "comparison"])
def test_no_word_of_a_heading_a_name_or_a_figure_is_broken(page: str, width: int, tmp_path: Path) -> None:
    runs = two_runs(tmp_path)
    if page == "report":
        content = (runs / "a" / "report.html").read_text(encoding="utf-8")
    else:
        content = comparison_page(compare_runs(run_facts(str(runs / "a")), run_facts(str(runs / "b"))))
    narrow = f"<style>html {{ max-width: {width}px }}</style>"  # a window of Chromium's is 500 px wide at least
    probe = tmp_path / "probe.html"
    probe.write_text(
        re.sub(r"<meta http-equiv[^>]*>", "", content).replace("</body>", f"{narrow}{WORDS}</body>"), encoding="utf-8"
    )
    command = [
        str(CHROMIUM), *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={max(500, width)},900",
        "--virtual-time-budget=2000", "--dump-dom", probe.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=True)
    title = re.search(r"<title>words (.*?)</title>", done.stdout, re.DOTALL)
    assert title is not None, done.stdout[:500]
    assert html.unescape(title[1]) == "[]"
