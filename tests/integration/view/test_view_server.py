"""The server of `evalrun view`: who gets what, and what nobody gets."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from builders.results.stored_runs import samples_of, write_run
from builders.results.view_server import TOKEN, view_served
from yarl import URL

from evalrun_cli.viewer.export import export_view
from evalrun_cli.viewer.run_catalog import find_runs
from evalrun_cli.viewer.shown_runs import shown_runs
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


async def test_server_changes_nothing(address: str, client: aiohttp.ClientSession) -> None:
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


async def test_server_range_gives_these_bytes(address: str, client: aiohttp.ClientSession) -> None:
    async with client.get(address + "data/night/results.jsonl", headers={"Range": "bytes=1-10"}) as answer:
        assert answer.status == 206
        assert await answer.read() == b'"dataset":'


async def test_server_run_that_cannot_be_read_says_why(tmp_path: Path, client: aiohttp.ClientSession) -> None:
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
