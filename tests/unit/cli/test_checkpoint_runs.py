"""Which checkpoints a pattern names, what their runs say, and how a series ends."""

from pathlib import Path

import pytest

from evalrun_cli.local.checkpoint_runs import Checkpoint, apply_checkpoint, find_checkpoints
from evalrun_cli.local.run_series import worst
from evalrun_runtime.exits import BadInputError, ExitCode


def add_checkpoint(place: Path) -> None:
    place.mkdir(parents=True)
    (place / "config.json").write_text("{}")
    (place / "model.safetensors").write_bytes(b"")


def test_find_checkpoints_sorts_by_number_and_finds_verls_subdirectory(tmp_path: Path) -> None:
    add_checkpoint(tmp_path / "global_step_10")
    add_checkpoint(tmp_path / "global_step_9" / "actor" / "huggingface")
    (tmp_path / "global_step_notes.txt").write_text("")
    found = find_checkpoints(str(tmp_path / "global_step_*"))
    assert [each.label for each in found] == ["global_step_9", "global_step_10"]
    assert found[0].directory == tmp_path / "global_step_9" / "actor" / "huggingface"
    assert found[1].directory == tmp_path / "global_step_10"


@pytest.mark.parametrize(
    ("pattern", "said"), [("none*", "no directory"), ("step_*", "merge a training's shards first")]
)
def test_a_pattern_without_weights_is_refused(tmp_path: Path, pattern: str, said: str) -> None:
    (tmp_path / "step_1" / "actor").mkdir(parents=True)
    with pytest.raises(BadInputError, match=said):
        find_checkpoints(str(tmp_path / pattern))


def test_two_directories_of_one_name_are_refused(tmp_path: Path) -> None:
    for parent in "ab":
        add_checkpoint(tmp_path / parent / "step_1")
    with pytest.raises(BadInputError, match="called step_1"):
        find_checkpoints(str(tmp_path / "*" / "step_1"))


def test_a_run_has_its_checkpoints_model_and_step() -> None:
    manifest = {"metadata": {"name": "nightly"}, "spec": {"model": {"path": "x", "revision": None}, "datasets": []}}
    spec = apply_checkpoint(manifest, Checkpoint("global_step_12", Path("/c/12")))["spec"]
    assert spec["model"]["path"] == "/c/12"
    assert spec["lineage"] == {"step": 12}
    assert "lineage" not in apply_checkpoint(manifest, Checkpoint("final", Path("/c/f")))["spec"]


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([], ExitCode.SUCCEEDED),
        ([0, 0], ExitCode.SUCCEEDED),
        ([0, 3], ExitCode.DEGRADED),
        ([4, 3], ExitCode.GATE_FAILED),
        ([0, 1, 4], ExitCode.FAILED),
        ([2, 0], ExitCode.BAD_INPUT),
        ([-9, 0], ExitCode.FAILED),
        ([130, 1], ExitCode.STOPPED),
    ],
)
def test_series_exit_code_is_that_of_its_worst_run(codes: list[int], code: ExitCode) -> None:
    assert worst(codes) is code
