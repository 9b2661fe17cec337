"""The page of `evalrun view` in a real Chromium: served, live, and from static files."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from builders.browser import CHROMIUM, Browser, open_browser
from builders.results.hostile_texts import HOSTILE_TEXTS
from builders.results.samples import sample_result, verdict, with_changes
from builders.results.stored_runs import write_run
from builders.results.view_server import directory_served, view_served

from evalrun_aggregator.ledger.entries import StoredCompletion, StoredVerdict
from evalrun_aggregator.ledger.items import pack_row
from evalrun_aggregator.ledger.store import LedgerWriter
from evalrun_cli.viewer.export import export_view
from evalrun_results.samples import SampleResult

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path: apt-get install chromium"),
    pytest.mark.timeout(240),
]

COUNTER = "(document.querySelector('.tools p')?.textContent ?? '')"
NEVER = "script, iframe, img, svg, link, meta, style, form, object, embed, base, video, audio"
"""Elements that the page never makes."""
ROWS = "[...document.querySelectorAll('.rows .row')].map(row => row.innerText.replace(/\\s+/g, ' '))"


def the_samples(*, better: bool = False) -> list[SampleResult]:
    """Make 300 problems with 2 samples each: every third is wrong, every seventh timed out, every fifth has tags."""
    made = []
    for problem in range(300):
        for sample in range(2):
            status = "timeout" if problem % 7 == 0 else "wrong_answer" if problem % 3 == 0 and not better else "success"
            result = sample_result(f"set/{problem}", sample, [status, "success"], output_tokens=problem * 2 + sample)
            word = "zebra" if problem == 123 else "horse"
            response = f"Here.\n```python\nprint('{word}', {problem})\n```\n"
            tags = ("dp", "brute force") if problem % 5 == 0 else ()
            made.append(with_changes(result, response=response, tags=tags, difficulty="AB"[problem % 2]))
    return made


async def search(browser: Browser, text: str) -> None:
    await browser.run(
        f"(box => {{ box.value = {text!r}; box.dispatchEvent(new Event('input')) }})(document.querySelector('input'))"
    )


def is_own(requests: list[str], address: str) -> bool:
    own = urlsplit(address).netloc
    return all(urlsplit(each).netloc == own or each == "about:blank" for each in requests)


async def check_samples_page(browser: Browser, address: str) -> None:
    """Filter, search, sort, move and open."""
    await browser.open(f"{address}#/run/night/samples")
    await browser.until(f"{COUNTER} === '600 of 600 samples'")
    await search(browser, "status=timeout")
    await browser.until(f"{COUNTER} === '86 of 600 samples'")
    await search(browser, '"tag=brute force" difficulty=A')
    await browser.until(f"{COUNTER} === '60 of 600 samples'")
    assert "A dp, brute force" in await browser.run(f"{ROWS}[0]")
    await search(browser, "tag!=dp")
    await browser.until(f"{COUNTER} === '480 of 600 samples'")
    await search(browser, "zeb")
    await browser.until(f"{COUNTER} === '2 of 600 samples'")
    await search(browser, "Horse status=wrong_answer tokens>=100 tokens<120")
    await browser.until(f"{COUNTER} === '6 of 600 samples'")
    assert "q=Horse+status" in await browser.run("location.hash")
    await search(browser, "tokens>many")
    await browser.until("document.querySelector('.problem').textContent.includes('many is no number')")
    await search(browser, "")
    await browser.until("!document.querySelector('.problem').textContent")
    assert await browser.run(f"{COUNTER} === '600 of 600 samples'")

    await browser.run("document.querySelector('[title=\"sort by output tokens\"]').click()")
    await browser.run("document.querySelector('[title=\"sort by output tokens\"]').click()")
    await browser.until(f"{ROWS}[0].startsWith('set/299 1')")
    await browser.run("document.querySelector('.scroller').focus()")
    await browser.press("j", "j")
    await browser.press("Enter", "\r")
    await browser.until("document.querySelector('h1')?.textContent === 'set/299 · sample 0'")
    assert "print" in await browser.run("document.querySelector('pre code .hljs-built_in').textContent")
    await browser.press("Escape")
    await browser.until(f"{ROWS}[0]?.startsWith('set/299 1')")


async def test_samples_page_filter_search_sort_and_keyboard_work(tmp_path: Path) -> None:
    run = write_run(tmp_path / "night", the_samples())
    async with view_served(run) as address, open_browser(tmp_path / "profile") as browser:
        await browser.look(1280)
        await check_samples_page(browser, address)
        assert browser.messages == []
        assert is_own(browser.requests, address)


async def test_sample_opened_while_the_table_changes_is_shown(tmp_path: Path) -> None:
    run = write_run(tmp_path / "night", the_samples())
    async with view_served(run) as address, open_browser(tmp_path / "profile") as browser:
        await browser.look(1280)
        await browser.open(f"{address}#/run/night/samples")
        await browser.until(f"{ROWS}.length > 0")
        # In one task: the page learns of its new address only after it.
        await browser.run(
            "document.querySelector('.rows .row').click(),"
            " document.querySelector('[title=\"sort by output tokens\"]').click()"
        )
        await browser.until("document.querySelector('h1')?.textContent === 'set/0 · sample 0'")
        assert "/sample/" in await browser.run("location.hash")


async def test_static_files_same_page_works_from_any_web_server(tmp_path: Path) -> None:
    write_run(tmp_path / "night", the_samples())
    export_view([str(tmp_path / "night")], tmp_path / "site")
    async with directory_served(tmp_path / "site") as address, open_browser(tmp_path / "profile") as browser:
        await browser.look(1280)
        await check_samples_page(browser, address)
        assert browser.messages == []
        assert is_own(browser.requests, address)


async def test_sample_page_failed_test_shows_difference(tmp_path: Path) -> None:
    run = write_run(tmp_path / "night", the_samples())
    async with view_served(run) as address, open_browser(tmp_path / "profile") as browser:
        await browser.open(f"{address}#/run/night/sample/humaneval/set%2F3/0/0/0")
        await browser.until("document.querySelector('.diff')?.textContent === '- out 0\\n+ other\\n'")
        text = await browser.run("document.body.innerText")
        assert "Tests: 1 of 2 passed" in text
        assert "1 of 2 of this problem" in text
        await browser.press("j", "j")
        await browser.until("document.querySelector('h1').textContent === 'set/3 · sample 1'")


async def test_compare_page_lists_flips_and_shows_both_answers(tmp_path: Path) -> None:
    write_run(tmp_path / "a", the_samples())
    write_run(tmp_path / "b", the_samples(better=True))
    async with view_served(tmp_path) as address, open_browser(tmp_path / "profile") as browser:
        await browser.open(address)
        await browser.until("document.querySelectorAll('input[type=checkbox]').length === 2")
        await browser.run("document.querySelectorAll('input[type=checkbox]').forEach(box => box.click())")
        await browser.run("[...document.querySelectorAll('button')].at(-1).click()")
        wanted = "170 ended otherwise: 170 gained and 0 lost from a to b"
        await browser.until(f"document.body.innerText.includes({wanted!r})")
        await browser.run("document.querySelector('tbody a').click()")
        await browser.until("document.querySelectorAll('.sides section').length === 2")
        assert "wrong answer" in await browser.run("document.querySelector('.sides').innerText")


async def test_live_run_new_verdicts_appear_and_a_later_verdict_replaces_an_earlier(tmp_path: Path) -> None:
    directory = tmp_path / "night"
    directory.mkdir()
    writer = LedgerWriter(directory / "ledger.sqlite3")
    writer.begin()
    writer.add_problems([("demo", f"set/{number}") for number in range(100)])
    writer.commit()

    def judge(numbers: range, status: str = "success", *, judged: bool = True) -> None:
        made = verdict([status])
        writer.begin()
        for number in numbers:
            row = pack_row(number, 0, 0)
            writer.add_completions([StoredCompletion(row, f"answer {number}", started_at=1.0)])
            stored = StoredVerdict(
                row, made.SerializeToString(), made.final_status, judged, accepted=judged, recorded_at=9.0
            )
            writer.add_verdicts([stored._replace(reason="" if judged else "no sandbox answered")])
        writer.commit()

    try:
        judge(range(10))
        async with view_served(directory) as address, open_browser(tmp_path / "profile") as browser:
            await browser.open(f"{address}#/run/night/samples")
            await browser.until(f"{COUNTER} === '10 of 10 samples, running'")
            judge(range(10, 40))
            await browser.until(f"{COUNTER} === '40 of 40 samples, running'")
            judge(range(40, 41), judged=False)
            await browser.until(f"{COUNTER} === '41 of 41 samples, running'")
            judge(range(40, 41))
            await search(browser, "judged=true")
            await browser.until(f"{COUNTER} === '41 of 41 samples, running'")
            await search(browser, "")

            results = [sample_result(f"set/{number}", dataset="demo") for number in range(100)]
            write_run(directory, results)
            await browser.until(f"{COUNTER} === '100 of 100 samples'")
            assert browser.messages == []
    finally:
        writer.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
async def test_hostile_texts_no_script_runs_and_no_request_leaves(tmp_path: Path, width: int, scheme: str) -> None:
    assert len(HOSTILE_TEXTS) >= 60
    samples = []
    for number, text in enumerate(HOSTILE_TEXTS):
        made = verdict(["wrong_answer", "runtime_error"])
        for test in made.tests:
            for name in ("input", "expected_output", "stdout", "stderr"):
                getattr(test, name).text = f"{text}\n{name}"
            test.reason = text
        made.code = text
        result = sample_result(f"{number} {text}", dataset=f"set {text}"[:16])
        changes = {"response": text, "model": text, "difficulty": text, "language": text, "not_judged_reason": text}
        samples.append(with_changes(result, verdict=made, tags=(text,), **changes))
    write_run(
        tmp_path / "<script>window.owned=1<", samples, run=HOSTILE_TEXTS[0], spec={"model": {"path": HOSTILE_TEXTS[10]}}
    )
    async with view_served(tmp_path) as address, open_browser(tmp_path / "profile") as browser:
        await browser.look(width, scheme=scheme)
        run = "#/run/script-window.owned-1"
        for place in ("#/", run):
            await browser.open(f"{address}{place}")
            await browser.until("document.querySelector('table tbody tr')")
        await browser.open(f"{address}{run}/samples")
        await browser.until(f"{COUNTER}.endsWith('{len(samples)} samples')")
        assert await browser.run("document.documentElement.scrollWidth <= innerWidth")
        await browser.run(
            "document.querySelector('.scroller').style.height = '4000px'; dispatchEvent(new Event('resize'))"
        )
        links = await browser.run("[...document.querySelectorAll('.rows a')].map(link => link.getAttribute('href'))")
        assert len(links) == len(samples)
        for number, link in enumerate(links):
            await browser.run(f"location.hash = {link!r}")
            is_shown = f"document.querySelector('h1')?.textContent.startsWith('{number} ')"
            await browser.until(f"{is_shown} || document.querySelector('.notice[role=alert]')")
            assert await browser.run(f"{is_shown} && document.querySelectorAll('main details').length >= 2"), link
            assert await browser.run("document.documentElement.scrollWidth <= innerWidth"), link
            assert await browser.run(f"document.querySelectorAll('main :is({NEVER})').length") == 0
        assert await browser.run("typeof window.owned") == "undefined"
        assert is_own(browser.requests, address)
        assert browser.messages == []
