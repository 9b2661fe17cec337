"""Fetching a model's directory from a store: whole or not at all, and what the user is told."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from evalrun_data.checkpoint import ATTEMPTS, fetch_checkpoint, main
from evalrun_runtime.exits import BadInputError, ExitCode

FILES = {"config.json": b"{}", "model-00001.safetensors": b"w" * 1000, "tokenizer/vocab.json": b"[]"}


class BadStore(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A store that cuts each file short so many times."""

    protocol = "badstore"
    cachable = False
    cut_short: dict[str, int] = {}  # noqa: RUF012 - shared, since fsspec makes the instances

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("badstore://", "memory://")))

    def get_file(self, rpath: str, lpath: str, **arguments: Any) -> None:
        super().get_file(rpath, lpath, **arguments)
        left = self.cut_short.get(rpath, 0)
        if left:
            self.cut_short[rpath] = left - 1
            Path(lpath).write_bytes(Path(lpath).read_bytes()[:-1])


fsspec.register_implementation("badstore", BadStore, clobber=True)


@pytest.fixture
def store() -> Iterator[MemoryFileSystem]:
    files = MemoryFileSystem()
    for name, content in FILES.items():
        files.pipe_file(f"/bucket/step_7/{name}", content)
    BadStore.cut_short.clear()
    yield files
    files.rm("/bucket", recursive=True)


def never(seconds: float) -> None:
    raise AssertionError(f"waited {seconds} s")


@pytest.mark.usefixtures("store")
def test_every_file_is_fetched_unchanged(tmp_path: Path) -> None:
    assert fetch_checkpoint("memory://bucket/step_7/", tmp_path / "model", never) == 1004
    came = {str(path.relative_to(tmp_path / "model")): path.read_bytes() for path in tmp_path.rglob("*.*")}
    assert {name: content for name, content in came.items() if not name.startswith("..")} == FILES
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_existing_directory_is_not_fetched_again(store: MemoryFileSystem, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    store.pipe_file("/bucket/step_7/new.json", b"x")
    assert fetch_checkpoint("memory://bucket/step_7", tmp_path / "model", never) == 0
    assert list((tmp_path / "model").iterdir()) == []


@pytest.mark.usefixtures("store")
def test_remains_of_an_ended_attempt_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "model.part").mkdir()
    (tmp_path / "model.part" / "half.safetensors").write_bytes(b"w")
    fetch_checkpoint("memory://bucket/step_7", tmp_path / "model", never)
    assert not (tmp_path / "model" / "half.safetensors").exists()


@pytest.mark.usefixtures("store")
def test_truncated_file_is_fetched_again(tmp_path: Path) -> None:
    waits: list[float] = []
    BadStore.cut_short["/bucket/step_7/model-00001.safetensors"] = 2
    fetch_checkpoint("badstore://bucket/step_7", tmp_path / "model", waits.append)
    assert (tmp_path / "model" / "model-00001.safetensors").stat().st_size == 1000
    assert waits == [1.0, 2.0]


@pytest.mark.usefixtures("store")
def test_file_that_stays_truncated_leaves_no_directory(tmp_path: Path) -> None:
    waits: list[float] = []
    BadStore.cut_short["/bucket/step_7/config.json"] = ATTEMPTS
    with pytest.raises(OSError, match="1 of 2 bytes"):
        fetch_checkpoint("badstore://bucket/step_7", tmp_path / "model", waits.append)
    assert not (tmp_path / "model").exists()


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("memory://bucket/step_8", "nothing is there"),
        ("memory://bucket", "config.json is missing; there is one in step_7: name that directory"),
        ("memory://bucket/step_7/tokenizer", "config.json is missing"),
        ("nowhere://bucket/x", "nowhere"),
    ],
)
def test_source_without_model_is_refused(source: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=says):
        fetch_checkpoint(source, tmp_path / "model", never)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("with_model", [False, True])
def test_adapter_is_fetched_alone_or_with_its_base(store: MemoryFileSystem, tmp_path: Path, with_model: bool) -> None:
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        store.pipe_file(f"/bucket/lora/{name}", b"{}")
    model = ["memory://bucket/step_7", str(tmp_path / "model")] if with_model else []
    assert main([*model, "--adapter", "memory://bucket/lora", str(tmp_path / "adapter")]) == ExitCode.SUCCEEDED
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()
    assert (tmp_path / "model").exists() == with_model


@pytest.mark.usefixtures("store")
def test_fetch_of_a_model_as_an_adapter_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--adapter", "memory://bucket/step_7", str(tmp_path / "adapter")]) == ExitCode.BAD_INPUT
    said = capsys.readouterr().err
    assert "model.adapter memory://bucket/step_7: no LoRA adapter is there, adapter_config.json is missing" in said


def test_fetch_program_reports_why_it_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory://bucket/none", str(tmp_path / "model")]) == ExitCode.BAD_INPUT
    assert "evalrun: model.path memory://bucket/none: nothing is there" in capsys.readouterr().err
    assert main(["memory://bucket/none"]) == ExitCode.BAD_INPUT
