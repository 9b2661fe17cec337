"""Which parts a run on one machine needs, and how often it is asked how far it is."""

import pytest

from evalrun_cli.local.local_run import Generation, parts_of, poll_seconds
from evalrun_cli.local.options import LocalOptions

FUSION = LocalOptions(sandbox_fusion="http://127.0.0.1:8080")
SERVED = Generation(["http://127.0.0.1:8000"], "model", "model")
RECORDED = Generation([], "model", "model", recorded=("--problems", "builtin:demo"))


@pytest.mark.parametrize(
    ("options", "generation", "parts"),
    [
        (LocalOptions(), None, ["sandbox", "judge", "aggregator"]),
        (FUSION, None, ["judge", "aggregator"]),
        (FUSION, SERVED, ["judge", "aggregator", "generator"]),
        (LocalOptions(), RECORDED, ["recorded", "sandbox", "judge", "aggregator", "generator"]),
    ],
)
def test_parts(options: LocalOptions, generation: Generation | None, parts: list[str]) -> None:
    assert parts_of(options, generation) == parts


@pytest.mark.parametrize(("elapsed", "seconds"), [(0.0, 0.02), (2.0, 0.1), (4.0, 0.2), (86400.0, 0.2)])
def test_a_long_run_is_asked_less_often(elapsed: float, seconds: float) -> None:
    assert poll_seconds(elapsed) == pytest.approx(seconds)
