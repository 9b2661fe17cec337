"""A pretended cluster for schedules: Jobs list a real directory, runs end when a test says so."""

import copy
import json
import os
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from builders.operator.evalschedules import evalschedule_manifest

from evalrun_api.checkpoint_listing import encode_answer
from evalrun_api.checks import apply_defaults
from evalrun_api.manifest import schema_for
from evalrun_api.v1alpha1 import EvalSchedule, EvalScheduleStatus, ScheduleCondition, schedule_condition
from evalrun_data.checkpoints.choice import list_checkpoints
from evalrun_data.checkpoints.store import CheckpointStore, StoreError
from evalrun_operator.schedules.choice import make_listing_request
from evalrun_operator.schedules.decision import ObservedSchedule, ScheduleDecision
from evalrun_operator.schedules.job_state import ListingJob
from evalrun_operator.schedules.merge_step import find_waiting_merge, merge_job_name
from evalrun_operator.schedules.objects import make_eval_run, make_merged_run
from evalrun_operator.schedules.reconcile import decide
from evalrun_operator.schedules.runs import ScheduledRun, parse_scheduled_run

UID = "5c4edb1e-1111-2222-3333-444455556666"
BEGIN = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def evalschedule(changes: dict[str, Any] | None = None, created: datetime = BEGIN) -> EvalSchedule:
    """Return an EvalSchedule as the API server has it: defaults applied, with uid and times."""
    manifest = apply_defaults(schema_for("cluster", "EvalSchedule"), evalschedule_manifest(changes))
    manifest["metadata"] |= {
        "namespace": "evals", "uid": UID, "generation": 1, "creationTimestamp": created.isoformat(),
        "resourceVersion": "1",
    }  # fmt: skip
    return EvalSchedule.from_wire(manifest)


def write_checkpoint(root: Path, step: int, at: datetime, weights: str = "w", missing: str | None = None) -> None:
    """Write a small model in Hugging Face's layout, complete but for one file."""
    directory = root / f"global_step_{step}"
    index = json.dumps({"weight_map": {"a": SHARDS[0], "b": SHARDS[1]}})
    files = {"config.json": "{}", "tokenizer.json": "{}", "model.safetensors.index.json": index}
    files |= {SHARDS[0]: f"{weights} of step {step}", SHARDS[1]: "second"}
    for name, text in files.items():
        if name != missing:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(text)
            os.utime(directory / name, (at.timestamp(), at.timestamp()))


def write_shards(root: Path, step: int, at: datetime) -> None:
    """Write what verl leaves of a step: FSDP shards, and config and tokenizer without weights."""
    directory = root / f"global_step_{step}" / "actor"
    files = {f"model_world_size_2_rank_{rank}.pt": f"shard {rank} of step {step}" for rank in (0, 1)}
    files |= {"fsdp_config.json": '{"world_size": 2}', "huggingface/config.json": "{}"}
    for name, text in {**files, "huggingface/tokenizer.json": "{}"}.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (at.timestamp(), at.timestamp()))


@dataclass
class ScheduleWorld:
    """One schedule, its runs, and the directory that its Jobs list."""

    directory: Path
    schedule: EvalSchedule = field(default_factory=evalschedule)
    now: datetime = BEGIN
    reachable: bool = True
    runs: dict[str, ScheduledRun] = field(default_factory=dict)
    """By uid: two runs of one name would be two evaluations."""
    job: ListingJob | None = None
    merge_job: ListingJob | None = None
    merge_jobs: list[str] = field(default_factory=list)
    """Jobs that merge, in order."""
    made: list[str] = field(default_factory=list)
    """Runs that were created, in order."""
    events: list[tuple[str, str]] = field(default_factory=list)
    decision: ScheduleDecision | None = None

    @property
    def status(self) -> EvalScheduleStatus:
        return self.schedule.status or EvalScheduleStatus()

    def said(self, kind: ScheduleCondition) -> tuple[str, str]:
        condition = schedule_condition(self.status, kind)
        return ("", "") if condition is None else (condition.status, condition.reason)

    def message(self, kind: ScheduleCondition) -> str:
        condition = schedule_condition(self.status, kind)
        return "" if condition is None else condition.message

    @property
    def steps(self) -> list[int]:
        """The steps that have got a run, in the order of the runs."""
        return [int(name.partition("@")[2]) for name in self.made]

    def step(self, killed_after: int | None = None) -> ScheduleDecision:
        """Reconcile once; with `killed_after` the operator is killed after so many writes."""
        decision = self.decision = decide(self.schedule, self.observed(), self.now)
        writes = self._writes(decision)
        for number, write in enumerate(writes):
            if killed_after is not None and number >= killed_after:
                return decision
            write()
        return decision

    def observed(self) -> ObservedSchedule:
        start = self.status.start
        job = self.job if start is not None and self.job is not None and self.job.name == start.job else None
        one = find_waiting_merge(self.status)
        name = None if one is None else merge_job_name(self.schedule.metadata.name, UID, one.digest)
        merge = self.merge_job if self.merge_job is not None and self.merge_job.name == name else None
        return ObservedSchedule(tuple(self.runs.values()), job, merge)

    def settle(self, limit: int = 20) -> "ScheduleWorld":
        """Reconcile repeatedly, with the Job's answer in between, until nothing changes any more."""
        for _ in range(limit):
            before = self.status
            decision = self.step()
            self.answer()
            jobs = (decision.make_job, decision.delete_job, decision.make_merge, decision.delete_merge_job)
            changed = any(jobs) or decision.start or decision.delete_runs or decision.merged
            if self.status == before and not changed:
                return self
        raise AssertionError(f"the operator does not come to rest: {self.status.to_wire()}")

    def wait(self, **delta: float) -> "ScheduleWorld":
        """Let time pass, with a reconciliation whenever one is asked for."""
        end = self.now + timedelta(**delta)
        for _ in range(5000):
            decision = self.settle().decision
            delay = None if decision is None else decision.requeue_after
            if delay is None or self.now + timedelta(seconds=delay) > end:
                self.now = end
                self.settle()
                return self
            self.now += timedelta(seconds=max(1.0, delay))
        raise AssertionError("too many reconciliations")

    def answer(self) -> None:
        """Run the Job that was made: the real listing, over the directory."""
        if self.job is None or self.job.state != "Running":
            return
        request = make_listing_request(self.schedule.spec, self.status, str(self.directory))
        try:
            if not self.reachable:
                raise StoreError("s3://training/grpo: could not connect to the endpoint")
            text = encode_answer(list_checkpoints(request, CheckpointStore(request.url), self.now))
        except StoreError as error:
            self.job = replace(self.job, state="Failed", message=str(error))
        else:
            self.job = replace(self.job, state="Succeeded", message=text)

    def end(
        self,
        name: str | None = None,
        *,
        succeeded: bool = True,
        gate: Any = None,
        hours: float = 1.0,
        stopped_early: bool = False,
    ) -> "ScheduleWorld":
        """End a run, or all that are active, after so many hours on the GPUs."""
        for uid, run in self.runs.items():
            if not run.complete and name in {None, run.name}:
                self.runs[uid] = replace(
                    run, complete=True, succeeded=succeeded, gate=gate, started=self.now - timedelta(hours=hours),
                    stopped_early=stopped_early, released=self.now, completed=self.now, output_url=f"s3://evaluations/{run.name}",
                )  # fmt: skip
        return self

    def trigger(self, value: str) -> "ScheduleWorld":
        annotations = {"evalrun.dev/trigger": value}
        metadata = self.schedule.metadata.model_copy(update={"annotations": annotations})
        self.schedule = self.schedule.model_copy(update={"metadata": metadata})
        return self

    def change(self, **fields: Any) -> "ScheduleWorld":
        self.schedule = self.schedule.model_copy(update={"spec": self.schedule.spec.model_copy(update=fields)})
        return self

    def _writes(self, decision: ScheduleDecision) -> list[Any]:
        writes: list[Any] = [lambda run=run: self.runs.pop(run.uid) for run in decision.delete_runs]
        if (job := decision.make_job) is not None:
            writes.append(lambda: self._make_job(job))
        parent = decision.parent
        for found in decision.start:
            manifest = make_eval_run(self.schedule, found, decision.start_time or self.now, parent, decision.trigger)
            writes.append(lambda manifest=manifest: self._make_run(manifest))
            parent = manifest["metadata"]["name"]
        writes += [lambda one=one: self._make_run(make_merged_run(self.schedule, one)) for one in decision.merged]
        if (merge := decision.make_merge) is not None:
            writes.append(lambda: self._make_merge_job(merge_job_name(self.schedule.metadata.name, UID, merge.digest)))
        writes.append(lambda: self._write(decision))
        if decision.delete_job is not None:
            writes.append(self._delete_job)
        if decision.delete_merge_job is not None:
            writes.append(self._delete_merge_job)
        return writes

    def _make_job(self, name: str) -> None:
        if self.job is None or self.job.name != name:
            self.job = ListingJob(name, f"uid-{name}", "Running")

    def end_merge(self, state: Literal["Succeeded", "Failed"] = "Succeeded", message: str = "") -> "ScheduleWorld":
        if self.merge_job is None:
            raise AssertionError("nothing is merged")
        self.merge_job = replace(self.merge_job, state=state, message=message)
        return self

    def _make_merge_job(self, name: str) -> None:
        if self.merge_job is None or self.merge_job.name != name:
            self.merge_job = ListingJob(name, f"uid-{name}", "Running")
            self.merge_jobs.append(name)

    def _delete_merge_job(self) -> None:
        self.merge_job = None

    def _delete_job(self) -> None:
        self.job = None

    def _write(self, decision: ScheduleDecision) -> None:
        self.schedule = self.schedule.model_copy(update={"status": decision.status})
        self.events += [(event.reason, event.message) for event in decision.events]

    def _make_run(self, manifest: dict[str, Any]) -> None:
        name = manifest["metadata"]["name"]
        if any(run.name == name for run in self.runs.values()):
            return  # 409 of the API server: it is there, and it is ours
        there = copy.deepcopy(manifest)
        uid = f"run-{len(self.made)}"
        there["metadata"] |= {"uid": uid, "creationTimestamp": self.now.isoformat(), "generation": 1}
        seen = parse_scheduled_run(apply_defaults(schema_for("cluster"), there))
        if seen is None:
            raise AssertionError(f"{name} does not say which checkpoint it evaluates")
        self.runs[uid] = seen
        self.made.append(f"{name}@{seen.step}")
