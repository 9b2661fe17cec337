"""The server of `evalrun view`: who gets what, and what nobody gets."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

import aiohttp
import pytest
from builders.results.stored_runs import samples_of, write_run
from builders.results.view_server import TOKEN, runs_served, view_served
from yarl import URL

from evalrun_cli.viewer.export import export_view
from evalrun_cli.viewer.run_catalog import find_runs, open_inside
from evalrun_cli.viewer.run_page import series_page
from evalrun_cli.viewer.shown_runs import shown_runs
from evalrun_results.samples import JsonObject
from evalrun_runtime.exits import BadInputError


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    write_run(tmp_path / "night", samples_of([(3, 1)]))
    (tmp_path / "night" / "secret.txt").write_text("secret")
    async with view_served(tmp_path) as served:
        yield served


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def status_of(client: aiohttp.ClientSession, url: str, **headers: str) -> int:

    async with client.get(URL(url, encoded=True), headers=headers) as answer:
        return answer.status


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("", 200),
        ("app/app.js", 200),
        ("app/vendored.json", 200),
        ("app/..%2fserver.py", 404),
        ("data/runs.json", 200),
        ("data/night/run.json", 200),
        ("data/night/results.jsonl", 200),
        ("data/night/summary.json", 404),
        ("data/night/secret.txt", 404),
        ("data/night/..%2fsecret.txt", 404),
        ("data/night/%2e%2e%2f%2e%2e%2fetc%2fpasswd", 404),
        ("data/..%2fnight/run.json", 404),
        ("data/other/run.json", 404),
        ("nothing", 404),
    ],
)
async def test_server_gives_the_pages_files_alone(
    address: str, client: aiohttp.ClientSession, path: str, status: int
) -> None:
    assert await status_of(client, address + path) == status


async def test_server_without_the_token_gives_nothing(address: str, client: aiohttp.ClientSession) -> None:
    for other in ("wrong", TOKEN[:-1], "", "a-token%00"):
        assert await status_of(client, address.replace(TOKEN, other)) == 404
        assert await status_of(client, address.replace(TOKEN, other) + "data/runs.json") == 404


async def test_server_other_host_name_is_refused(address: str, client: aiohttp.ClientSession) -> None:
    port = address.split(":")[2].split("/")[0]
    assert await status_of(client, address, Host=f"hostile.invalid:{port}") == 421
    assert await status_of(client, address, Host="127.0.0.1") == 421
    assert await status_of(client, address, Host=f"localhost:{port}") == 200


async def test_server_refuses_methods_that_change_data(address: str, client: aiohttp.ClientSession) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        async with client.request(method, address + "data/runs.json") as answer:
            assert answer.status == 404


async def test_server_headers_allow_the_pages_own_files_alone(address: str, client: aiohttp.ClientSession) -> None:
    async with client.get(address) as answer:
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_server_range_request_gives_the_requested_bytes(address: str, client: aiohttp.ClientSession) -> None:
    async with client.get(address + "data/night/results.jsonl", headers={"Range": "bytes=1-10"}) as answer:
        assert answer.status == 206
        assert await answer.read() == b'"dataset":'


async def test_server_run_that_cannot_be_read_is_422_with_the_reason(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    run = write_run(tmp_path / "night", samples_of([(3, 1)]))
    (run / "summary.json").write_text("{}")
    async with view_served(tmp_path) as address:
        async with client.get(address + "data/night/run.json") as answer:
            assert answer.status == 422
            assert "unknown schema" in (await answer.json())["error"]
        async with client.get(address + "data/runs.json") as answer:
            assert "unknown schema" in (await answer.json())["runs"][0]["error"]


def test_shown_runs_ids_are_safe_and_distinct(tmp_path: Path) -> None:
    for name in ("a/night", "b/night", "c d/<script>", ".hidden/run"):
        write_run(tmp_path / name, samples_of([(1, 1)]))
    with shown_runs([str(tmp_path), str(tmp_path / "a" / "night")]) as runs:
        assert list(runs()) == ["night", "night-2", "script"]
    with pytest.raises(BadInputError, match="no such directory"):
        find_runs(str(tmp_path / "absent"))


def test_export_directory_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "night", samples_of([(1, 1)]))
    with pytest.raises(BadInputError, match="is not empty: name another"):
        export_view([str(run)], run)


def test_export_run_that_has_not_ended_is_refused(tmp_path: Path) -> None:
    (tmp_path / "night").mkdir()
    (tmp_path / "night" / "ledger.sqlite3").touch()
    with pytest.raises(BadInputError, match="has not ended"):
        export_view([str(tmp_path)], tmp_path / "site")


def test_export_site_names_no_path_of_this_machine(tmp_path: Path) -> None:
    write_run(tmp_path / "night", samples_of([(3, 1)]))
    export_view([str(tmp_path / "night")], tmp_path / "site")
    for file in (tmp_path / "site").rglob("*.json"):
        assert str(tmp_path) not in file.read_text(), file


async def test_server_gives_nothing_that_a_link_leads_to(tmp_path: Path, client: aiohttp.ClientSession) -> None:
    secret = tmp_path / "token"
    secret.write_text("secret")
    linked = write_run(tmp_path / "runs" / "linked", samples_of([(3, 1)]))
    (linked / "results.jsonl").unlink()
    (linked / "results.jsonl").symlink_to(secret)
    (linked / ".view").mkdir()
    (linked / ".view" / "00007.words").symlink_to(secret)
    index = write_run(tmp_path / "runs" / "index", samples_of([(3, 1)])) / ".view"
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "00007.words").write_text("secret")
    index.symlink_to(tmp_path / "private")
    async with view_served(tmp_path / "runs") as address:
        for path in ("linked/results.jsonl", "linked/00007.words", "index/00007.words"):
            assert await status_of(client, f"{address}data/{path}") == 404, path
        assert await status_of(client, f"{address}data/linked/run.json") == 422
        assert await status_of(client, f"{address}data/index/run.json") == 200
    assert [file.name for file in (tmp_path / "private").iterdir()] == ["00007.words"]


async def test_page_of_a_series_shows_new_runs(tmp_path: Path, client: aiohttp.ClientSession) -> None:
    with series_page(tmp_path) as address:
        runs = f"{address.removesuffix('#/')}data/runs.json"
        async with client.get(runs) as response:
            assert await response.json() == {"runs": []}
        write_run(tmp_path / "step_1", samples_of([(3, 1)]))
        listed: list[str] = []
        while listed != ["step_1"]:
            async with client.get(runs) as response:
                listed = [each["id"] for each in (await response.json())["runs"]]
            await asyncio.sleep(0.05)  # the pace of a poll


class ReplacedFile:
    """A run whose file is replaced by a link to elsewhere as soon as it was opened."""

    run_id = place = "run"
    is_live = False

    def __init__(self, directory: Path, secret: Path) -> None:
        self._directory = directory
        self._secret = secret

    def headline(self) -> JsonObject:
        return {}

    def description(self) -> JsonObject:
        return {}

    def open_file(self, name: str) -> BinaryIO | None:
        opened = open_inside(self._directory / name, self._directory)
        (self._directory / name).unlink()
        (self._directory / name).symlink_to(self._secret)
        return opened


async def test_opened_file_that_is_replaced_by_a_link_is_sent_unchanged(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    (tmp_path / "secret").write_text("secret, and long")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "results.jsonl").write_text("own content")
    run = ReplacedFile((tmp_path / "run").resolve(), tmp_path / "secret")
    async with runs_served(lambda: {"run": run}) as address:
        url = f"{address}data/run/results.jsonl"
        async with client.get(url, headers={"Range": "bytes=4-10"}) as response:
            assert (response.status, await response.text()) == (206, "content")
        assert await status_of(client, url) == 404


@pytest.mark.parametrize(("target", "is_opened"), [("inside", True), ("../outside", False), ("pipe", False)])
def test_open_inside_opens_only_ordinary_files_of_the_directory(
    tmp_path: Path, target: str, *, is_opened: bool
) -> None:
    directory = (tmp_path / "run").resolve()
    directory.mkdir()
    for file in (directory / "inside", tmp_path / "outside"):
        file.write_text("text")
    os.mkfifo(directory / "pipe")
    (directory / "link").symlink_to(target)
    opened = open_inside(directory / "link", directory)
    assert (opened is not None) is is_opened
    if opened is not None:
        opened.close()
