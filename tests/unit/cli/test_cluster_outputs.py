"""How outputs come out of a cluster. The aggregator's side is its real program, run here instead of in its pod."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
from builders.operator.world import generating

from evalrun_api.v1alpha1 import EvalRun
from evalrun_cli.cluster.outputs import SendFrom, bring_outputs
from evalrun_runtime.exits import BadInputError

FILES = {
    "results.jsonl": b"{}\n" * 100_000, "qa_logs/humaneval_qa.jsonl": b"{}\n", "summary.json": b'{"schema": 1}',
}  # fmt: skip


def ended(url: str) -> EvalRun:
    run = generating().generate_all().judge_all().settle().run
    if run.status is None:
        raise AssertionError("it has ended")
    return run.model_copy(update={"status": run.status.model_copy(update={"output_url": url})})


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        file = tmp_path / "stored" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return tmp_path / "stored"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "brought"
    made.mkdir()
    return made


def contents(directory: Path) -> dict[str, bytes]:
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


async def run_here(command: Sequence[str], output: BinaryIO) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command[1:], stdout=output, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    if process.returncode != 0:
        raise BadInputError(f"it ended with {process.returncode}: {said.decode()}")


def refusing(message: str) -> SendFrom:
    async def send(command: Sequence[str], output: BinaryIO) -> None:
        del command
        output.write(b"half of a tar")
        raise BadInputError(message)

    return send


@asynccontextmanager
async def no_pod(claim: str) -> AsyncIterator[SendFrom]:
    """Refuse, as a cluster does in which one may not create pods."""
    raise BadInputError(f"creating a pod that reads claim {claim}: pods is forbidden")
    yield run_here


async def test_the_aggregator_sends_every_file(stored: Path, directory: Path) -> None:
    assert await bring_outputs(ended(str(stored)), directory, [], run_here, no_pod) == "its aggregator"
    assert contents(directory) == FILES


async def test_the_aggregator_sends_only_the_requested_files(stored: Path, directory: Path) -> None:
    await bring_outputs(ended(str(stored)), directory, ["summary.json"], run_here, no_pod)
    assert contents(directory) == {"summary.json": FILES["summary.json"]}


async def test_aggregator_refusal_is_reported(tmp_path: Path, directory: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInputError, match=r"no finished run there: summary\.json is missing"):
        await bring_outputs(ended(str(tmp_path / "empty")), directory, [], run_here, no_pod)


async def test_outputs_are_read_from_the_url_after_the_ttl(stored: Path, directory: Path) -> None:
    url = stored.as_uri()
    assert await bring_outputs(ended(url), directory, [], None, no_pod) == url
    assert contents(directory) == FILES


async def test_outputs_are_read_from_the_url_if_exec_is_forbidden(
    stored: Path, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await bring_outputs(ended(stored.as_uri()), directory, [], refusing("pods/exec is forbidden"), no_pod)
    assert json.loads((directory / "summary.json").read_text()) == {"schema": 1}
    assert "pods/exec is forbidden" in caplog.text


async def test_a_volume_without_its_aggregator_is_read_through_a_pod(stored: Path, directory: Path) -> None:
    mounted: list[str] = []

    @asynccontextmanager
    async def reader(claim: str) -> AsyncIterator[SendFrom]:
        async def send(command: Sequence[str], output: BinaryIO) -> None:
            assert command[3] == "/mnt/claims/results/team/run_1"
            await run_here([*command[:3], str(stored), *command[4:]], output)

        mounted.append(claim)
        yield send
        mounted.append("gone")

    url = "pvc://results/team/run_1"
    assert await bring_outputs(ended(url), directory, [], None, reader) == f"{url}, through a pod"
    assert contents(directory) == FILES
    assert mounted == ["results", "gone"]


async def test_volume_that_no_pod_may_mount_is_named_with_the_remedy(directory: Path) -> None:
    says = r"team/run_1 on the volume of PersistentVolumeClaim results: mount it in a pod .* pods is forbidden"
    with pytest.raises(BadInputError, match=says):
        await bring_outputs(ended("pvc://results/team/run_1"), directory, [], None, no_pod)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("pvc://run-ledger-0f3b2c1a/outputs/run_1", "/var/lib/evalrun/outputs/run_1"),
        ("pvc://results/team/run_1", "/mnt/claims/results/team/run_1"),
    ],
)
async def test_the_aggregator_is_asked_for_the_path_inside_its_pod(directory: Path, url: str, path: str) -> None:
    asked: list[str] = []

    async def send(command: Sequence[str], output: BinaryIO) -> None:
        asked.extend(command)
        output.write(b"half of a tar")

    with pytest.raises(BadInputError):
        await bring_outputs(ended(url), directory, [], send, no_pod)
    assert asked[3:] == [path]


async def test_a_tar_that_leads_outside_is_refused(stored: Path, directory: Path, tmp_path: Path) -> None:
    import tarfile

    async def send(command: Sequence[str], output: BinaryIO) -> None:
        del command
        with tarfile.open(fileobj=output, mode="w|") as tar, (stored / "summary.json").open("rb") as file:
            entry = tarfile.TarInfo("../outside")
            entry.size = len(FILES["summary.json"])
            tar.addfile(entry, file)

    with pytest.raises(BadInputError, match="the download cannot be unpacked"):
        await bring_outputs(ended("pvc://results/run_1"), directory, [], send, no_pod)
    assert not (tmp_path / "outside").exists()
