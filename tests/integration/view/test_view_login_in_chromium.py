"""The page for others in a real Chromium: a link, the login page, and then what the link leads to."""

from pathlib import Path

import pytest
from builders.browser import CHROMIUM, open_browser
from builders.results.stored_runs import samples_of, write_run
from builders.results.view_server import view_shared

from evalrun_cli.viewer.access import SESSION_SECONDS, SharedAccess
from evalrun_runtime.connections.bearer_tokens import BearerTokens

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path: apt-get install chromium"),
    pytest.mark.timeout(240),
]

TOKEN = "0123456789-0123456789"
LOGIN = "document.querySelector('form[method=post] input[type=password]')"


async def test_login_by_token_leads_on_to_the_link_that_was_opened(tmp_path: Path) -> None:
    write_run(tmp_path / "night", samples_of([(3, 1)]))
    now = [1_000_000.0]
    access = SharedAccess((), BearerTokens(TOKEN), None, lambda: now[0])
    async with view_shared(access, tmp_path) as address, open_browser(tmp_path / "profile") as browser:
        await browser.look(400)
        await browser.open(f"{address}#/run/night/samples")
        await browser.until(LOGIN)
        assert await browser.run("document.scripts.length") == 0
        assert await browser.run("document.documentElement.scrollWidth <= innerWidth")

        for guess, shown in (("wrong", "document.querySelector('[role=alert]')?.textContent.includes('not accepted')"),
                             (TOKEN, "document.querySelectorAll('.rows .row').length > 0")):  # fmt: skip
            await browser.run(f"{LOGIN}.value = {guess!r}, document.querySelector('form button').click()")
            await browser.until(shown)
        assert await browser.run("location.hash") == "#/run/night/samples"
        assert TOKEN not in await browser.run("location.href")
        assert await browser.run("document.cookie") == ""

        now[0] += SESSION_SECONDS
        await browser.run("location.hash = '#/'")
        told = "document.querySelector('.notice[role=alert]')?.textContent.includes('reload this page to log in')"
        await browser.until(told)
        await browser.run("location.reload()")
        await browser.until(LOGIN)
        assert not [each for each in browser.requests if TOKEN in each]
