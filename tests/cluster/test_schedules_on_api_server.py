"""Schedules on a real API server, with exactly the operator's role, a driven clock and real listings."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.cluster.controllers import apply_crds
from builders.cluster.controlplane import ControlPlane
from builders.operator.evalschedules import RACE, REFUSED_SCHEDULES, evalschedule_manifest
from builders.operator.running_operator import operator_kubeconfig
from builders.operator.schedule_world import SHARDS, write_checkpoint, write_shards
from builders.operator.scheduled_nights import API, MERGE, NAME, Nights, nights
from builders.results.stored_runs import totals_of, verdicts_of

from evalrun_api.checks import apply_defaults
from evalrun_api.manifest import schema_for
from evalrun_api.v1alpha1 import Gate
from evalrun_results.comparisons.gate import GateDecision, decide_gate
from evalrun_results.comparisons.run_gate import decide_or_explain
from evalrun_results.metrics.problem_totals import DatasetTotals

CRD = Path(__file__).parents[2] / "k8s" / "crd.yaml"


@pytest.fixture(scope="module")
def api(bare_control_plane: ControlPlane) -> ControlPlane:
    """An API server with both CRDs: the Jobs of the nights are played, and no controller may touch them."""
    apply_crds(bare_control_plane, CRD)
    return bare_control_plane


def test_api_server_accepts_a_schedule_with_the_same_defaults_as_offline(api: ControlPlane) -> None:
    manifest = evalschedule_manifest()
    answer = api.request("POST", f"{API}/default/evalschedules", manifest, dryRun="All", fieldValidation="Strict")
    assert answer.status == 201, answer.message
    assert answer.body["spec"] == apply_defaults(schema_for("cluster", "EvalSchedule"), manifest)["spec"]


def test_nightly_example_on_the_api_server_evaluates_the_newest_checkpoint(api: ControlPlane, tmp_path: Path) -> None:
    manifest = yaml.safe_load((CRD.parents[1] / "examples" / "nightly_schedule.yaml").read_text())
    assert manifest["metadata"] == {"name": NAME}
    answer = api.request("POST", f"{API}/default/evalschedules", manifest, dryRun="All", fieldValidation="Strict")
    assert answer.status == 201, answer.message
    evening = datetime(2040, 1, 9, 18, 0, tzinfo=UTC)
    directory = tmp_path / "grpo"
    for step in (100, 200):
        write_checkpoint(directory, step, evening - timedelta(days=1))
    with nights(api, operator_kubeconfig(api), "example", directory, evening, {"spec": manifest["spec"]}) as world:
        world.night(datetime(2040, 1, 10, 2, 0, tzinfo=UTC))
        (run,) = world.runs()
        assert run["spec"]["model"]["path"] == "pvc://training/grpo/global_step_200"
        (dataset,), (asked,) = run["spec"]["datasets"], manifest["spec"]["template"]["datasets"]
        assert dataset == dataset | asked  # the API server adds defaults
        assert not run["spec"].get("gates")  # there is no last good run yet


def test_api_server_refuses_bad_schedules_with_the_same_message_as_offline(api: ControlPlane) -> None:
    for case in REFUSED_SCHEDULES:
        answer = api.request("POST", f"{API}/default/evalschedules", case.manifest, dryRun="All")
        assert answer.status == 422, f"{case.name}: {answer.message}"
        assert case.says in answer.message, case.name


def evalrun(plane: ControlPlane, *arguments: str) -> tuple[int, str]:
    """Run the command; returns its exit code and what it printed."""
    command = [sys.executable, "-m", "evalrun_cli", *arguments]
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=60)
    return done.returncode, " ".join(done.stdout.split())


def test_each_checkpoint_is_evaluated_once_across_clock_change_outages_and_faults(
    api: ControlPlane, tmp_path: Path
) -> None:
    """Eight nights: the last Sunday of March among them, and one each with the faults that checkpoints have."""
    evening = datetime(2040, 3, 22, 18, 0, tzinfo=UTC)
    directory = tmp_path / "grpo"
    old = evening - timedelta(days=1)
    write_checkpoint(directory, 10, old)
    kubeconfig = operator_kubeconfig(api)
    changes = {
        "spec.schedule": "30 2 * * *",
        "spec.checkpoints.policy": "EveryNew",
        "spec.merge": {"cache": "s3://models/merged"},
    }
    with nights(api, kubeconfig, "nights", directory, evening, changes) as world:
        world.night(datetime(2040, 3, 23, 1, 30, tzinfo=UTC))
        assert world.steps == [10]
        policy = f"/apis/networking.k8s.io/v1/namespaces/nights/networkpolicies/{NAME}-checkpoints"
        fenced = api.request("GET", policy).body["spec"]
        assert {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}} in fenced["egress"][0]["to"]
        api.request("PATCH", policy, {"spec": {"egress": [{}]}}, MERGE)

        # A checkpoint is written slowly: not yet there at the start, taken up the same night.
        start = datetime(2040, 3, 24, 1, 30, tzinfo=UTC)
        write_checkpoint(directory, 20, start, missing=SHARDS[1])
        world.night(start)
        assert (world.steps, world.condition("Sound")["reason"]) == ([10], "BeingWritten")
        assert api.request("GET", policy).body["spec"] == fenced, "what somebody changed is written again before a Job"
        write_checkpoint(directory, 20, start)
        world.set_clock(start + timedelta(minutes=20))
        world.play(lambda: len(world.runs()) == 2, "the checkpoint of the night")
        world.end_runs()

        # 02:30 does not exist on 25 March 2040: the start comes at 03:00, once. The bucket is away at first.
        start = datetime(2040, 3, 25, 1, 0, tzinfo=UTC)
        write_checkpoint(directory, 30, start - timedelta(hours=1))
        world.reachable = False
        world.night(start)
        assert world.condition("Discovered")["reason"] == "ListingFailed"
        assert "could not connect" in world.condition("Discovered")["message"]
        world.reachable = True
        world.set_clock(start + timedelta(minutes=2))
        world.play(lambda: len(world.runs()) == 3, "the checkpoint after the bucket came back")
        world.play(lambda: not world.status().get("start"), "the end of the start that made this run")
        world.end_runs()

        # The operator is down for a night, and its runs are deleted meanwhile.
        world.kill()
        write_checkpoint(directory, 40, start + timedelta(hours=2))
        api.request("DELETE", f"{API}/nights/evalruns")
        world.set_clock(datetime(2040, 3, 26, 7, 0, tzinfo=UTC))
        world.start()
        world.play(lambda: 40 in [run["spec"]["lineage"]["step"] for run in world.runs()], "the night made up")
        world.end_runs()

        # One is broken, one is rewritten, one is deleted.
        start = datetime(2040, 3, 27, 0, 30, tzinfo=UTC)
        write_checkpoint(directory, 50, start - timedelta(hours=1), missing=SHARDS[0])
        write_checkpoint(directory, 40, start - timedelta(hours=1), weights="rewritten")
        shutil.rmtree(directory / "global_step_20")
        world.night(start)
        assert world.steps == [10, 20, 30, 40, 40]
        assert [SHARDS[0] in text for text in world.events("CheckpointBroken")] == [True]
        write_checkpoint(directory, 50, start - timedelta(hours=1))
        world.night(datetime(2040, 3, 28, 0, 30, tzinfo=UTC))
        world.night(datetime(2040, 3, 29, 0, 30, tzinfo=UTC))
        assert world.steps == [10, 20, 30, 40, 40, 50]
        assert world.condition("Started")["reason"] == "NothingNew"
        assert world.status()["lastGood"]["step"] == 50

        # A start by hand, while suspended; then what people see.
        write_checkpoint(directory, 60, start)
        path = f"{API}/nights/evalschedules/{NAME}"
        assert api.request("PATCH", path, {"spec": {"suspend": True}}, "application/merge-patch+json").status == 200
        code, said = evalrun(api, "schedule", "run", NAME, "-n", "nights")
        assert (code, said) == (0, f"evalschedule/{NAME}: asked for a start; see kubectl describe evalschedule {NAME}")
        assert evalrun(api, "schedule", "run", "other", "-n", "nights")[0] == 2
        world.play(lambda: bool(world.status().get("lastTrigger")) and not world.status().get("start"), "by hand")
        world.runs()
        assert world.steps[-1] == 60
        table = api.kubectl("get", "evalschedules", "-n", "nights")
        assert table.split()[:8] == ["NAME", "SCHEDULE", "SUSPEND", "LAST", "NEXT", "CHECKPOINT", "LAST-GOOD", "GATE"]
        assert "step 60" in table
        run = world.runs()[-1]
        assert run["metadata"]["ownerReferences"][0]["kind"] == "EvalSchedule"
        assert run["spec"]["lineage"].keys() >= {"schedule", "step", "parent"}, json.dumps(run["spec"]["lineage"])

        # Shards are merged before their run, which says what it evaluates and where its model is.
        world.end_runs()
        write_shards(directory, 70, start)
        assert evalrun(api, "schedule", "run", NAME, "-n", "nights")[0] == 0

        def is_merged() -> bool:
            world.set_clock(world.now + timedelta(seconds=20))  # a Job that merges is looked at now and then
            world.runs()
            return world.steps[-1] == 70

        world.play(is_merged, "the run of a merged checkpoint")
        (run,) = [run for run in world.runs() if run["spec"]["lineage"]["step"] == 70]
        digest = run["metadata"]["annotations"]["evalrun.dev/checkpoint-digest"]
        uid = world.schedule()["metadata"]["uid"]
        assert run["spec"]["model"]["path"] == f"s3://models/merged/{NAME}-{uid[:5]}/step-70-{digest[:10]}"
        assert run["metadata"]["annotations"]["evalrun.dev/checkpoint-url"].endswith("/global_step_70/actor")
        world.play(lambda: not world.status().get("merges"), "nothing is left to merge")
        assert world.condition("Merged")["status"] == "True"


def has_result(world: Nights, step: int) -> bool:
    return bool(world.status().get("latestResult", {}).get("step") == step)


def test_a_loss_of_half_a_margin_each_night_is_caught_by_the_fixed_baseline(api: ControlPlane, tmp_path: Path) -> None:
    """The gates are those that the operator writes into each run, decided from each run's figures."""
    problems, loss, fixed = 1000, 20, "s3://evaluations/sft/final"
    gate = {"dataset": "mbpp_reg", "maxRegression": "0.04"}
    changes = {
        "spec.checkpoints.policy": "EveryNew",
        "spec.template.gates": [{"baseline": "LastGood", **gate}, {"baseline": fixed, **gate}],
    }

    def figures(night: int) -> Mapping[str, DatasetTotals]:
        solved = (place < 800 - loss * (night - 1) for place in range(problems))
        return totals_of(verdicts_of(solved, dataset="mbpp_reg"))

    results = {fixed: figures(1)}
    decisions: list[dict[str, GateDecision]] = []

    def gate_passed(run: dict[str, Any]) -> str:
        mine = results[f"s3://out/{run['metadata']['name']}"] = figures(run["spec"]["lineage"]["step"] // 10)
        gates = [Gate.model_validate(one) for one in run["spec"]["gates"]]
        decided = {
            "fixed" if one.baseline == fixed else "last good": decide_gate(
                one, results[str(one.baseline)], mine, family=len(gates)
            ).decision
            for one in gates
        }
        decisions.append(decided)
        if GateDecision.FAIL in decided.values():
            return "False"
        return "True" if set(decided.values()) == {GateDecision.PASS} else "Unknown"

    evening, directory = datetime(2040, 5, 1, 18, 0, tzinfo=UTC), tmp_path / "grpo"
    good = []
    with nights(api, operator_kubeconfig(api), "drift", directory, evening, changes) as world:
        for night in range(1, 5):
            start = datetime(2040, 5, 1 + night, 1, 0, tzinfo=UTC)
            write_checkpoint(directory, 10 * night, start - timedelta(hours=1))
            world.night(start, ends=False)
            world.end_runs(gate_passed)
            world.play(partial(has_result, world, 10 * night), "the night's result")
            good.append(world.status()["lastGood"]["step"])
        assert world.condition("GatePassed")["status"] == "False"
        assert world.steps == [10, 20, 30, 40]
    against_last_good = [one["last good"] for one in decisions if "last good" in one]
    assert against_last_good == [GateDecision.PASS] * 3
    assert (decisions[0]["fixed"], decisions[3]["fixed"]) == (GateDecision.PASS, GateDecision.FAIL)
    assert good == [10, 20, 30, 30]  # the checkpoint that lost too much is not the next baseline


def test_a_race_keeps_the_best_checkpoint_and_compares_each_with_it(api: ControlPlane, tmp_path: Path) -> None:
    """The gates are those that the operator writes into each run; the first of them is decided without one."""
    solved = {10: 600, 20: 680, 30: 640, 40: 680}
    results: dict[str, Mapping[str, DatasetTotals]] = {}

    def gate_passed(run: dict[str, Any]) -> str:
        right = (place < solved[run["spec"]["lineage"]["step"]] for place in range(1000))
        mine = results[f"s3://out/{run['metadata']['name']}"] = totals_of(verdicts_of(right, dataset="mbpp_reg"))
        if not run["spec"].get("gates"):
            return "True"
        (gate,) = map(Gate.model_validate, run["spec"]["gates"])
        decision = decide_or_explain(gate, results[str(gate.baseline)], mine).decision
        return {GateDecision.PASS: "True", GateDecision.FAIL: "False"}.get(decision, "Unknown")

    evening, directory = datetime(2040, 6, 1, 18, 0, tzinfo=UTC), tmp_path / "grpo"
    best = []
    with nights(api, operator_kubeconfig(api), "race", directory, evening, {"spec.race": RACE}) as world:
        for night, step in enumerate(solved, start=1):
            start = datetime(2040, 6, 1 + night, 1, 0, tzinfo=UTC)
            write_checkpoint(directory, step, start - timedelta(hours=1))
            world.night(start, ends=False)
            world.end_runs(gate_passed)
            world.play(partial(has_result, world, step), "the night's result")
            best.append(world.status()["best"]["step"])
        assert world.status()["bestStep"] == "step 40"
    assert best == [10, 20, 20, 40]  # the last one is as good as the best, and newer
