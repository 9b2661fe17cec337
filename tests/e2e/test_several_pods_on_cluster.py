"""Judges of several gateways and sandboxes on real pods, found by DNS and by EndpointSlices, while pods come and go."""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from builders.cluster.install import PROBLEMS, Installed
from builders.cluster.pools import Course, Pool, kill_and_add, roll_and_drain
from builders.cluster.runs import FinishedRun, Verdicts, outcome, small
from builders.cluster.tasks import Tasks, paced

BY_NAME, BY_SLICES = "several", "shared"
"""Runs: one with a judge of its own, whose gateways ask for the sandboxes' name, one with the chart's shared judge,
which has a token and certificates of its own."""
COUNT = 200
"""Two or three slots take 70 to 100 s for as many: a busy machine starts all the pods that are added well within it."""
ADDED_SECONDS = 45.0
"""Within which a sandbox that is ready has answered. CoreDNS keeps names for 5 s, a gateway asks every 5 s, and a busy
machine takes seconds to look into each pod; were it found only when connections are renewed, it took a minute."""


@pytest.fixture(scope="module")
def several_paced(install: Installed, directory: Path) -> tuple[Tasks, Verdicts]:
    """Problems that take a second of waiting each, their verdicts, and a server of that name that answers."""
    tasks, verdicts = paced(directory, COUNT, "several-paced")
    install.upload(*tasks.files.values())
    install.serve_answers("several-paced", tasks)
    return tasks, verdicts


@pytest.fixture(scope="module")
def courses(
    install: Installed, several_paced: tuple[Tasks, Verdicts], directory: Path
) -> Mapping[str, tuple[Course, FinishedRun]]:
    """What was seen of the pods of both, and what became of the runs; they go on side by side."""
    own = {"gateway": {"minReplicas": 2, "maxReplicas": 2}, "sandbox": {"minReplicas": 2, "maxReplicas": 3, "slots": 1}}
    shared = {key: value for key, value in small(judgeRef=install.shared_judge()).items() if key != "judge"}
    specs = {BY_NAME: small(judge=own), BY_SLICES: shared}
    pools = {
        BY_NAME: Pool(install, install.runs, BY_NAME, f"evalrun.dev/run={BY_NAME}"),
        BY_SLICES: Pool(install, install.system, "evalrun", "app.kubernetes.io/instance=evalrun"),
    }
    happens = {BY_NAME: kill_and_add, BY_SLICES: roll_and_drain}

    def follow(name: str) -> tuple[Course, FinishedRun]:
        place, endpoint = f"pvc://{PROBLEMS}", install.endpoint("several-paced")
        install.start(several_paced[0].manifest(name, place, endpoint, **specs[name]), directory)
        course = happens[name](pools[name], name, time.monotonic)
        return course, outcome(install, name)

    with ThreadPoolExecutor(len(pools)) as threads:
        return dict(zip(pools, threads.map(follow, pools), strict=True))


@pytest.mark.parametrize("how", [BY_NAME, BY_SLICES])
def test_every_pod_works_and_pods_that_come_and_go_change_no_verdict(
    courses: Mapping[str, tuple[Course, FinishedRun]], several_paced: tuple[Tasks, Verdicts], how: str
) -> None:
    course, run = courses[how]
    assert 0 < course.judged < several_paced[0].total, "the pods came and went before or after the run"
    assert run.verdicts == several_paced[1]
    assert run.status["notJudged"] == "0"
    print(f"{how}: {course.judged} judged when all had happened; seconds from ready to an answer: {course.added}")
    assert max(course.added.values()) < ADDED_SECONDS
    assert set(course.ends.values()) <= {0}, course.ends
    assert course.tracebacks == []
