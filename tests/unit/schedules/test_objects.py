"""What a schedule makes, how its Job is read, and what is shown of it."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from builders.operator.schedule_world import BEGIN, ScheduleWorld, evalschedule, write_checkpoint
from builders.operator.world import operator_settings
from prometheus_client import CollectorRegistry, generate_latest

from evalrun_api.checkpoint_listing import ListingRequest, ReadyCheckpoint
from evalrun_api.manifest import find_problems
from evalrun_api.v1alpha1 import DatasetStatus, EvalScheduleStatus, GoodCheckpoint, LatestResult, PendingMerge
from evalrun_operator.schedules.job_state import parse_listing_job
from evalrun_operator.schedules.metrics import ScheduleMetrics
from evalrun_operator.schedules.objects import (
    jobs_policy,
    make_eval_run,
    make_listing_job,
    make_merge_job,
    make_merged_run,
)
from evalrun_operator.schedules.runs import find_schedule, parse_scheduled_run

FOUND = ReadyCheckpoint(path="global_step_120/actor/huggingface", step=120, digest="0123456789abcdef" * 2)


def test_the_run_is_the_template_with_the_checkpoint_and_its_lineage() -> None:
    schedule = evalschedule(
        {"spec.template.lineage": {"phase": "grpo"}, "spec.template.model": {"trustRemoteCode": True}}
    )
    run = make_eval_run(schedule, FOUND, BEGIN, "nightly-fedcba9876")
    assert find_problems(run, place="cluster") == []
    assert run["metadata"]["name"] == "nightly-0123456789"
    assert run["spec"]["model"] == {
        "path": "s3://training/grpo/global_step_120/actor/huggingface", "trustRemoteCode": True,
    }  # fmt: skip
    assert run["spec"]["lineage"] == {
        "schedule": "nightly", "step": 120, "phase": "grpo", "parent": "nightly-fedcba9876",
    }  # fmt: skip
    labels = run["metadata"]["labels"]
    assert (labels["evalrun.dev/schedule"], labels["evalrun.dev/step"], labels["evalrun.dev/phase"]) == (
        "nightly", "120", "grpo",
    )  # fmt: skip
    assert find_schedule(run) == ("nightly", schedule.metadata.uid)


BASE = {"spec.template.model": {"base": "Qwen/Qwen2.5-Coder-7B"}}


def test_the_run_of_an_adapter_names_its_base() -> None:
    found = FOUND.model_copy(update={"path": "global_step_120", "adapter": True})
    run = make_eval_run(evalschedule(BASE), found, BEGIN, None)
    assert find_problems(run, place="cluster") == []
    url = "s3://training/grpo/global_step_120"
    assert (run["spec"]["model"]["path"], run["spec"]["model"]["adapter"]) == ("Qwen/Qwen2.5-Coder-7B", url)
    scheduled = parse_scheduled_run({**run, "metadata": {**run["metadata"], "creationTimestamp": BEGIN}})
    assert scheduled is not None
    assert scheduled.url == url
    whole = make_eval_run(evalschedule(BASE), FOUND, BEGIN, None)  # of the same schedule
    assert find_problems(whole, place="cluster") == []
    assert whole["spec"]["model"]["path"].endswith("/actor/huggingface")
    assert "adapter" not in whole["spec"]["model"]


def test_the_run_of_a_merged_adapter_names_the_cached_one_and_its_base() -> None:
    schedule = evalschedule(BASE | {"spec.merge": {"cache": "s3://models"}})
    one = PendingMerge(path="global_step_120/actor", step=120, digest=FOUND.digest, start=BEGIN, adapter=True)
    run = make_merged_run(schedule, one)
    assert find_problems(run, place="cluster") == []
    assert run["spec"]["model"]["path"] == "Qwen/Qwen2.5-Coder-7B"
    assert run["spec"]["model"]["adapter"] == f"s3://models/nightly-5c4ed/step-120-{FOUND.digest[:10]}"
    noted = run["metadata"]["annotations"]["evalrun.dev/checkpoint-url"]
    assert noted == "s3://training/grpo/global_step_120/actor"
    (store,) = make_merge_job(schedule, one, EvalScheduleStatus(), [], operator_settings())["spec"]["template"]["spec"][
        "containers"
    ]
    assert "--adapter" in store["args"]


GATES = [
    {"baseline": "LastGood", "dataset": "mbpp_reg", "maxRegression": "0.02"},
    {"baseline": "s3://evaluations/sft/final", "dataset": "mbpp_reg", "maxRegression": "0.02"},
]


@pytest.mark.parametrize(
    ("good", "baselines"),
    [
        (None, ["s3://evaluations/sft/final"]),  # the first checkpoint has nothing to be compared with but the anchor
        ("s3://evaluations/grpo/a", ["s3://evaluations/grpo/a", "s3://evaluations/sft/final"]),
        ("", ["nightly-abcdefabcd", "s3://evaluations/sft/final"]),  # it left no URL
    ],
)
def test_gates_compare_with_the_last_good_checkpoint_and_a_fixed_one(good: str | None, baselines: list[str]) -> None:
    schedule = evalschedule({"spec.template.gates": GATES})
    last = GoodCheckpoint(url="s3://t/a", step=110, digest="abcdef" * 5, output_url=good or None)
    status = EvalScheduleStatus(last_good=None if good is None else last)
    run = make_eval_run(schedule.model_copy(update={"status": status}), FOUND, BEGIN, None)
    assert find_problems(run, place="cluster") == []
    assert [gate["baseline"] for gate in run["spec"]["gates"]] == baselines


def test_a_single_gate_is_left_out_until_there_is_a_last_good_checkpoint() -> None:
    run = make_eval_run(evalschedule({"spec.template.gates": [GATES[0]]}), FOUND, BEGIN, None)
    assert find_problems(run, place="cluster") == []
    assert "gate" not in run["spec"]


def test_the_job_is_restricted_and_alone_has_the_credentials() -> None:
    schedule = evalschedule(
        {
            "spec.checkpoints.url": "pvc://training/grpo",
            "spec.template.output.credentialsSecretRef": {"name": "bucket"},
            "spec.template.serviceAccountName": "reader",
            "spec.template.imagePullSecrets": [{"name": "pull"}],
        }
    )
    request = ListingRequest(url="/mnt/claims/training/grpo")
    job = make_listing_job(schedule, "nightly-5c4ed-list-1", request, operator_settings())
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "bucket"}}]
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert ListingRequest.model_validate_json(container["args"][0]) == request
    (_, mount) = container["volumeMounts"]
    assert mount == {"name": "claim-0", "mountPath": "/mnt/claims/training", "readOnly": True}
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("reader", False)
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert job["spec"]["backoffLimit"] == 0


def job(*conditions: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": "list-1", "uid": "u"}, "status": {"conditions": list(conditions)}}


def pod(**state: Any) -> dict[str, Any]:
    return {"status": {"containerStatuses": [{"state": state}]}}


COMPLETE, FAILED = {"type": "Complete", "status": "True"}, {"type": "Failed", "status": "True"}


@pytest.mark.parametrize(
    ("manifest", "pods", "state", "message"),
    [
        (job(), [], "Running", ""),
        (job(), [pod(waiting={"reason": "ContainerCreating"})], "Running", ""),
        (
            job(),
            [pod(waiting={"reason": "ErrImagePull", "message": "no such image"})],
            "Running",
            "ErrImagePull: no such image",
        ),
        (
            job(),
            [{"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}}],
            "Running",
            "Unschedulable",
        ),
        (job(COMPLETE), [pod(terminated={"exitCode": 0, "message": '{"folders":1}'})], "Succeeded", '{"folders":1}'),
        (
            job(FAILED),
            [pod(terminated={"exitCode": 1, "message": "log line\nevalrun: s3://b: no such host\n"})],
            "Failed",
            "evalrun: s3://b: no such host",
        ),
        (
            job(FAILED),
            [pod(terminated={"exitCode": 1, "message": '{"cause": "Failed", "text": "s3://b: no such host"}'})],
            "Failed",
            "s3://b: no such host",
        ),
        (
            job({**FAILED, "reason": "DeadlineExceeded", "message": "too long"}),
            [],
            "Failed",
            "DeadlineExceeded: too long",
        ),
        (job({**FAILED, "status": "False"}), [], "Running", ""),
    ],
)
def test_listing_job_state_and_message_follow_from_job_and_pods(
    manifest: dict[str, Any], pods: list[dict[str, Any]], state: str, message: str
) -> None:
    seen = parse_listing_job(manifest, pods)
    assert (seen.state, seen.message) == (state, message)


def test_the_newest_checkpoints_figures_are_shown(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    metrics = ScheduleMetrics(registry)
    write_checkpoint(tmp_path, 120, BEGIN - timedelta(days=1))
    nightly = ScheduleWorld(tmp_path).wait(hours=16)
    datasets = [DatasetStatus(name="mbpp_reg", accepted_at_1="0.581")]
    latest = LatestResult(run="nightly-x", step=120, gate="False", datasets=datasets)
    known = nightly.status.model_copy(update={"latest_result": latest})
    metrics.show(("evals", "nightly"), known)
    shown = generate_latest(registry).decode()
    where = 'namespace="evals",schedule="nightly"'
    assert f'evalrun_checkpoint_accepted_at_1{{dataset="mbpp_reg",{where}}} 0.581' in shown
    assert f"evalrun_checkpoint_step{{{where}}} 120.0" in shown
    assert f"evalrun_checkpoint_gate_passed{{{where}}} 0.0" in shown
    assert 'evalrun_schedule_started{namespace="evals",reason="RunsStarted",schedule="nightly"} 1.0' in shown
    assert f"evalrun_schedule_next_start_timestamp_seconds{{{where}}}" in shown
    suspended = nightly.change(suspend=True).wait().status.model_copy(update={"latest_result": latest})
    open_gate = suspended.model_copy(update={"latest_result": latest.model_copy(update={"gate": "Unknown"})})
    metrics.show(("evals", "nightly"), open_gate)
    shown = generate_latest(registry).decode()
    assert f"evalrun_schedule_next_start_timestamp_seconds{{{where}}}" not in shown  # nothing is due
    assert f"evalrun_checkpoint_gate_passed{{{where}}}" not in shown
    metrics.forget(("evals", "nightly"))
    assert where not in generate_latest(registry).decode()


def test_a_schedules_jobs_reach_no_metadata_service_unless_aggregators_do() -> None:
    """The merger unpickles shards, and with trustRemoteCode runs a model's code."""
    schedule, settings = evalschedule({"spec.merge": {"cache": "pvc://cache"}}), operator_settings()
    policy = jobs_policy(schedule, settings)["spec"]
    blocks = [to["ipBlock"] for rule in policy["egress"] for to in rule.get("to", ()) if "ipBlock" in to]
    assert {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]} in blocks
    assert {} not in policy["egress"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy
    listing = make_listing_job(schedule, "look", ListingRequest(url="s3://training/grpo"), settings)
    pending = PendingMerge(path="global_step_1/actor", step=1, digest="0" * 32, start=BEGIN)
    merging = make_merge_job(schedule, pending, EvalScheduleStatus(), [], settings)
    for job in (listing, merging):
        assert policy["podSelector"]["matchLabels"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
    named = jobs_policy(schedule, operator_settings(metadata_clients=["aggregator"]))["spec"]
    assert named["egress"] == [{}]


def test_jobs_of_a_schedule_have_the_placement_of_its_runs_aggregators() -> None:
    chart = {"aggregator": {"nodeSelector": {"pool": "cpu"}, "priorityClassName": "low", "labels": {"team": "a"}}}
    own = {"aggregator": {"nodeSelector": {"pool": "own"}, "labels": {"team": "b"}}}
    schedule = evalschedule({"spec.template.placement": own})
    job = make_listing_job(
        schedule, "look", ListingRequest(url="s3://training/grpo"), operator_settings(placement=chart)
    )
    template = job["spec"]["template"]
    assert (template["spec"]["nodeSelector"], template["spec"]["priorityClassName"]) == ({"pool": "own"}, "low")
    assert template["metadata"]["labels"]["team"] == "b"
    assert template["metadata"]["labels"]["app.kubernetes.io/component"] == "checkpoints"
