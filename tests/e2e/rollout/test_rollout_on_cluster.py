"""An EvalRun with replicas of its own on real pods: KubeRay's operator, Ray, verl and vLLM, on a CPU."""

import time
from pathlib import Path

import pytest
from builders.cluster.install import Installed
from builders.cluster.rollout import CLUSTER_GONE, GENERATED, PODS_GONE, REPLICAS, follow, rollout_manifest
from builders.cluster.runs import outcome


@pytest.mark.timeout(2400)  # loading an image of 7 GB, and replicas that start on two CPUs
def test_rollout_run_starts_replicas_and_frees_them_while_answers_are_judged(
    ray_install: Installed, ray_images: dict[str, str], problems: tuple[Path, dict[str, str]], directory: Path
) -> None:
    file, wanted = problems
    applied = time.monotonic()
    name = ray_install.start(rollout_manifest("rollout", file, ray_images["gen"]), directory)
    course = follow(ray_install, name, applied)
    assert course.status["phase"] == "Succeeded", course.status["conditions"]

    judged, total = course.judged_when_gone
    print(f"Ray's pods were gone when {judged} of {total} answers were judged")
    assert course.seconds["ClusterReady"] < course.seconds[GENERATED] < course.seconds[CLUSTER_GONE]
    assert course.seconds[PODS_GONE] < course.seconds["Judged"]
    assert judged < total == len(wanted)

    run = outcome(ray_install, name)
    assert {problem: verdict for (_, problem, _), verdict in run.verdicts.items()} == wanted
    assert run.status["attempts"] == 1
    print(f"replicas: {run.info['replicas']}; {run.info['gpu_seconds']:.0f} GPU seconds")
    assert len({replica["address"] for replica in run.info["replicas"]}) == REPLICAS
