"""Which parts a run on one machine needs, when they are launched, and how often it is asked how far it is."""

import asyncio
import sys
from pathlib import Path

import pytest

from evalrun_cli.local.local_run import poll_seconds
from evalrun_cli.local.options import LocalOptions
from evalrun_cli.local.parts import launch_parts, select_parts

FUSION = LocalOptions(sandbox_fusion="http://127.0.0.1:8080")


@pytest.mark.parametrize(
    ("options", "generates", "plays_back", "parts"),
    [
        (LocalOptions(), False, False, ["sandbox", "judge", "aggregator"]),
        (FUSION, False, False, ["judge", "aggregator"]),
        (FUSION, True, False, ["judge", "aggregator", "generator"]),
        (LocalOptions(), True, True, ["recorded", "sandbox", "judge", "aggregator", "generator"]),
    ],
)
def test_select_parts_returns_only_the_needed_parts(
    options: LocalOptions, generates: bool, plays_back: bool, parts: list[str]
) -> None:
    assert select_parts(options, generates=generates, plays_back=plays_back) == parts


def test_parts_that_are_not_used_end_with_the_context() -> None:
    with launch_parts(["judge", "aggregator"], [sys.executable, "hf://datasets/some/file.parquet"]) as launched:
        pids = [service.pid for service in launched.services.values()]
        assert [*launched.services] == ["judge", "aggregator"]
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_missing_file_prevents_the_launch_of_parts(tmp_path: Path) -> None:
    with launch_parts(["judge"], [str(tmp_path / "nowhere.jsonl")]) as launched:
        assert launched.services == {}
        assert launched.runner.run(asyncio.sleep(0, "usable")) == "usable"


@pytest.mark.parametrize(("elapsed", "seconds"), [(0.0, 0.02), (2.0, 0.1), (4.0, 0.2), (86400.0, 0.2)])
def test_a_long_run_is_asked_less_often(elapsed: float, seconds: float) -> None:
    assert poll_seconds(elapsed) == pytest.approx(seconds)
