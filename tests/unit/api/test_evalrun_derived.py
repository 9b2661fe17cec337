"""What the models work out from their fields."""

import pytest

from evalrun_api.v1alpha1 import EvalRunSpec, Judge, JudgeReference, Protocol, Rollout

SPEC = {"model": {"path": "a/b"}, "datasets": [{"name": "d", "source": "builtin:demo"}]}


@pytest.mark.parametrize(
    ("rollout", "replicas"),
    [
        (Rollout(), 4),  # 8 GPUs, two a replica
        (Rollout(gpus_per_node=2), 1),
        (Rollout(tensor_parallel=8, gpus_per_node=4), 1),  # a replica over two nodes
        (Rollout(tensor_parallel=1, data_parallel=2, gpus_per_node=8), 4),
        (Rollout(replicas=3), 3),
        (Rollout(min_replicas=6, max_replicas=9), 6),
        (Rollout(min_replicas=1, max_replicas=2), 2),
    ],
)
def test_initial_replicas_follow_from_gpus_and_parallelism(rollout: Rollout, replicas: int) -> None:
    assert rollout.initial_replicas == replicas


@pytest.mark.parametrize(
    ("rollout", "replicas", "pods"),
    [
        (Rollout(), 4, 1),
        (Rollout(), 5, 2),  # the last pod is half used
        (Rollout(tensor_parallel=8, gpus_per_node=4), 2, 4),
        (Rollout(engine="sglang", tensor_parallel=2, pipeline_parallel=2, gpus_per_node=4), 3, 3),
    ],
)
def test_worker_pods_hold_all_replicas(rollout: Rollout, replicas: int, pods: int) -> None:
    assert rollout.worker_pods(replicas) == pods


@pytest.mark.parametrize(("temperature", "greedy"), [("0", True), ("0.000", True), ("0.8", False)])
def test_protocol_is_greedy_at_temperature_zero_only(temperature: str, greedy: bool) -> None:
    protocol = Protocol(temperature=temperature)
    assert protocol.greedy is greedy
    assert protocol.temperature_value == float(temperature)


def test_a_run_without_judge_has_one_of_its_own() -> None:
    assert EvalRunSpec.model_validate(SPEC).own_judge == Judge()


def test_a_shared_judge_is_not_the_runs_own() -> None:
    spec = EvalRunSpec.model_validate({**SPEC, "judgeRef": {"name": "shared"}})
    assert spec.own_judge is None
    assert spec.judge_ref == JudgeReference(name="shared")
