"""axe-core on every page of `evalrun view`, wide and narrow, light and dark."""

from pathlib import Path

import pytest
from builders.axe import serious_findings
from builders.browser import CHROMIUM, Browser, open_browser
from builders.results.samples import sample_result, with_changes
from builders.results.stored_runs import write_run
from builders.results.view_server import view_served

from evalrun_results.samples import SampleResult

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path: apt-get install chromium"),
    pytest.mark.timeout(240),
]

STATUSES = ("success", "wrong_answer", "runtime_error", "timeout", "compile_error")
PAGES = {
    "#/": "document.querySelectorAll('tbody tr').length === 2",
    "#/run/a": "document.querySelectorAll('table').length >= 2",
    "#/run/a/samples": "document.querySelectorAll('.rows .row').length > 5",
    "#/run/a/samples?q=tokens>many": "document.querySelector('.problem')?.textContent",
    "#/run/a/sample/humaneval/set%2F1/0/0/0": "document.querySelector('.diff')",
    "#/compare?run=a&run=b": "document.querySelector('tbody a')",
    "#/compare?run=a&run=b&sample=%5B%22humaneval%22%2C%22set%2F1%22%2C%220%22%2C%220%22%2C%220%22%5D": "document.querySelectorAll('.sides section').length === 2",  # noqa: E501
    "#/nowhere": "document.querySelector('.notice[role=alert]')",
}  # fmt: skip
"""Every page by its address, and when it is drawn."""


def the_samples(*, better: bool = False) -> list[SampleResult]:
    code = "Here.\n```python\nclass A:\n    '''Doc.'''\n    x = 1  # why\n    def f(self): return print('a', 2)\n```\n"
    return [
        with_changes(
            sample_result(f"set/{number}", 0, ["success" if better else STATUSES[number % 5], "success"]), response=code
        )
        for number in range(24)
    ]


async def open_page(browser: Browser, address: str, place: str) -> None:
    await browser.open(f"{address}{place}")
    await browser.until(PAGES[place])


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")])
async def test_axe_finds_nothing_serious_on_any_page(tmp_path: Path, width: int, scheme: str) -> None:
    write_run(tmp_path / "a", the_samples())
    write_run(tmp_path / "b", the_samples(better=True))
    async with view_served(tmp_path) as address, open_browser(tmp_path / "profile") as browser:
        await browser.look(width, scheme=scheme)
        for place in PAGES:
            await open_page(browser, address, place)
            if place.startswith("#/run/a/sample/"):
                await browser.run("document.querySelectorAll('details').forEach(each => each.open = true)")
            assert await serious_findings(browser) == [], place


async def test_axe_finds_an_unnamed_box_and_pale_text(tmp_path: Path) -> None:
    """The check above is no empty one: what is broken is found, under the page's own policy."""
    write_run(tmp_path / "a", the_samples())
    write_run(tmp_path / "b", the_samples(better=True))
    async with view_served(tmp_path) as address, open_browser(tmp_path / "profile") as browser:
        await browser.look(1280)
        await open_page(browser, address, "#/")
        await browser.run("document.querySelector('input').removeAttribute('aria-label')")
        await browser.run("document.querySelector('h1').style.color = '#dddddd'; 0")
        found = {each.partition(":")[0] for each in await serious_findings(browser)}
        assert found == {"label", "color-contrast"}
