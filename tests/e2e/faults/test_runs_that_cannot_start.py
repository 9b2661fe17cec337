"""Runs that can never start: each ends within its deadline, and `kubectl describe` alone says why."""

import copy
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from builders.cluster.cluster import CommandFailedError, Object
from builders.cluster.faults import described, quota
from builders.cluster.install import Installed
from builders.cluster.runs import small
from builders.cluster.tasks import DEMO
from builders.operator.evalruns import change

DEADLINE_SECONDS = 30
SECONDS = 180
"""Until a run with that deadline has ended: seven of them at once, on two CPUs."""
TIGHT = {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}
BREAKS: dict[str, tuple[dict[str, Any], str]] = {
    "no-secret": ({"spec.endpoints.0.apiKeySecretRef.name": "nosuch"}, 'secret "nosuch" not found'),
    "no-claim": ({"spec.datasets.0.source": "pvc://nosuch/x.jsonl"}, 'persistentvolumeclaim "nosuch" not found'),
    "no-image": ({"spec.judge.gateway.image": "localhost/nosuch:1"}, "localhost/nosuch:1"),
    "no-class": ({"spec.aggregator.storage.className": "nosuch"}, 'storageclass.storage.k8s.io "nosuch" not found'),
    "tight": ({"spec.aggregator.resources": TIGHT}, "spec.aggregator.resources"),
    "no-quota": ({}, "exceeded quota: none"),
}
"""By run: what is wrong with it, and a part of what `kubectl describe` says."""


def broken(endpoint: Object, name: str) -> Object:
    manifest = DEMO.manifest(name, "", copy.deepcopy(endpoint), **small(output={"retain": True}))
    for path, value in BREAKS.get(name, ({}, ""))[0].items():
        change(manifest, path, value)
    return manifest


@pytest.fixture(scope="module")
def started(all_faults: None, install: Installed, quick: Object, directory: Path) -> Iterator[dict[str, Installed]]:
    """Where each broken run is; all of them have begun, and end side by side."""
    del all_faults
    with ExitStack() as stack:
        stack.enter_context(install.upgraded({"operator": {"startDeadlineSeconds": DEADLINE_SECONDS}}))
        free, full = (stack.enter_context(install.another_namespace(name)) for name in ("broken", "full"))
        full.cluster.apply(full.runs, quota("none", pods="0"))
        places = {name: full if name == "no-quota" else free for name in BREAKS}
        for name, there in places.items():
            there.start(broken(quick, name), directory)
        yield places


@pytest.mark.parametrize("name", BREAKS)
def test_a_run_that_cannot_start_ends_with_the_cause(started: dict[str, Installed], name: str) -> None:
    there = started[name]
    run = there.wait(name, SECONDS)
    assert run["status"]["phase"] == "Failed", run["status"]
    told = described(there, name)
    assert BREAKS[name][1] in told, told
    complete = next(one for one in run["status"]["conditions"] if one["type"] == "Complete")
    print(f"{name}: {complete['message']}")
    assert complete["reason"] == ("InvalidSpec" if name == "tight" else "CannotStart")


@pytest.mark.usefixtures("all_faults")
def test_ledger_volume_of_size_zero_is_refused_at_once(install: Installed, quick: Object, tmp_path: Path) -> None:
    manifest = broken(quick, "nothing")
    change(manifest, "spec.aggregator.storage.size", "0")
    with pytest.raises(CommandFailedError, match='a volume of nothing holds no ledger: write a size such as "10Gi"'):
        install.start(manifest, tmp_path)
