"""The status of an EvalSchedule, its conditions, and the reasons that each can have."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from evalrun_api.api_model import ApiModel, list_type
from evalrun_api.v1alpha1.lineage import Step
from evalrun_api.v1alpha1.status import Condition, Count, DatasetStatus, Figure

MAX_EVALUATED = 256
"""Digests that are remembered one by one; below them a step says that a checkpoint was evaluated."""
MAX_TROUBLED = 16
"""Broken or unfinished checkpoints that the status names."""
MAX_ACTIVE = 64
MAX_MERGES = 16
MAX_USAGE = 64
MAX_RIVALS = 16
MAX_PAID = 100
"""Runs of a RayCluster whose costs the status lists; of more, the first ones are one sum."""


class ScheduleCondition(StrEnum):
    """The type of a condition. Its status is True, False or Unknown."""

    ACCEPTED = "Accepted"
    """The operator can follow this schedule."""
    DISCOVERED = "Discovered"
    """The checkpoints' directory could be listed at the last start."""
    SOUND = "Sound"
    """Every checkpoint that is to be evaluated is complete and whole; the message names the others."""
    MERGED = "Merged"
    """Every checkpoint that had to be merged before its run was; Unknown while a Job merges."""
    STARTED = "Started"
    """The result of the last start: True if it created runs, or there was nothing new."""
    GATE_PASSED = "GatePassed"
    """The gate of the newest checkpoint that has ended; Unknown while there is none, or it is inconclusive."""
    SUSPENDED = "Suspended"
    """`suspend` is true: nothing is started by the clock."""
    REPLICAS_READY = "ReplicasReady"
    """The replicas that the schedule keeps are up; False while there are none."""


class ScheduleReason(StrEnum):
    """Reason of a condition's status."""

    SPEC_ACCEPTED = "SpecAccepted"
    """The schedule can be followed."""
    INVALID_SCHEDULE = "InvalidSchedule"
    """The cron expression or the time zone cannot be read; the message says what to write instead."""

    NOT_YET = "NotYet"
    """No start has been due yet."""
    LISTING = "Listing"
    """A Job lists the checkpoints; the message says what delays it, if anything does."""
    LISTED = "Listed"
    """The directory was listed."""
    LISTING_FAILED = "ListingFailed"
    """The directory could not be listed and is tried again; the message quotes the error."""

    ALL_SOUND = "AllSound"
    """No checkpoint that is to be evaluated is broken or unfinished."""
    BEING_WRITTEN = "BeingWritten"
    """A checkpoint is not complete yet; it is looked at again."""
    BROKEN = "Broken"
    """A complete checkpoint lacks something; the message names it. It gets no run, and is looked at again."""

    ALL_MERGED = "AllMerged"
    """There was nothing to merge, or everything was merged."""
    MERGING = "Merging"
    """A Job merges a checkpoint's shards; the message names it, and what delays it, if anything does."""
    MERGE_FAILED = "MergeFailed"
    """A checkpoint's shards cannot be merged; the message quotes the merger. It is tried again."""

    RUNS_STARTED = "RunsStarted"
    """The start created runs."""
    NOTHING_NEW = "NothingNew"
    """Every sound checkpoint has been evaluated."""
    START_MISSED = "StartMissed"
    """startingDeadlineSeconds, or the time of the next start, passed first."""
    STILL_RUNNING = "StillRunning"
    """concurrencyPolicy: Forbid, and runs of an earlier start are active: the start waits."""
    BUDGET_SPENT = "BudgetSpent"
    """One more run would exceed the day's GPU hours; a later start evaluates the remaining checkpoints."""
    REFUSED = "Refused"
    """The API server refuses a run, or an object of somebody else has its name; the message quotes it."""

    PASSED = "Passed"
    """The gate passed."""
    FAILED = "Failed"
    """The gate failed."""
    INCONCLUSIVE = "Inconclusive"
    """The gate was inconclusive."""
    NO_GATE = "NoGate"
    """The newest run has no gate."""

    SUSPEND_REQUESTED = "SuspendRequested"
    """`suspend` is true."""
    NOT_SUSPENDED = "NotSuspended"
    """`suspend` is false."""

    NOT_KEPT = "NotKept"
    """`replicas` is unset: each run starts its own."""
    NONE_NEEDED = "NoneNeeded"
    """No run waits for replicas, and no GPU is held."""
    REPLICAS_STARTING = "ReplicasStarting"
    """The RayCluster is being made; the message quotes KubeRay."""
    REPLICAS_IN_USE = "ReplicasInUse"
    """A run has its turn on the replicas; the message names it."""
    REPLICAS_IDLE = "ReplicasIdle"
    """No run has its turn; the message tells when the replicas go."""
    REPLICAS_LEAVING = "ReplicasLeaving"
    """The RayCluster is being deleted; the message tells why."""


SCHEDULE_REASONS: dict[ScheduleCondition, frozenset[ScheduleReason]] = {
    ScheduleCondition.ACCEPTED: frozenset({ScheduleReason.SPEC_ACCEPTED, ScheduleReason.INVALID_SCHEDULE}),
    ScheduleCondition.DISCOVERED: frozenset(
        {ScheduleReason.NOT_YET, ScheduleReason.LISTING, ScheduleReason.LISTED, ScheduleReason.LISTING_FAILED}
    ),
    ScheduleCondition.SOUND: frozenset(
        {ScheduleReason.NOT_YET, ScheduleReason.ALL_SOUND, ScheduleReason.BEING_WRITTEN, ScheduleReason.BROKEN}
    ),
    ScheduleCondition.MERGED: frozenset(
        {ScheduleReason.NOT_YET, ScheduleReason.ALL_MERGED, ScheduleReason.MERGING, ScheduleReason.MERGE_FAILED}
    ),
    ScheduleCondition.STARTED: frozenset(
        {ScheduleReason.NOT_YET, ScheduleReason.RUNS_STARTED, ScheduleReason.NOTHING_NEW, ScheduleReason.START_MISSED,
         ScheduleReason.STILL_RUNNING, ScheduleReason.BUDGET_SPENT, ScheduleReason.REFUSED,
         ScheduleReason.LISTING_FAILED, ScheduleReason.LISTING}
    ),
    ScheduleCondition.GATE_PASSED: frozenset(
        {ScheduleReason.NOT_YET, ScheduleReason.PASSED, ScheduleReason.FAILED, ScheduleReason.INCONCLUSIVE,
         ScheduleReason.NO_GATE}
    ),
    ScheduleCondition.SUSPENDED: frozenset({ScheduleReason.SUSPEND_REQUESTED, ScheduleReason.NOT_SUSPENDED}),
    ScheduleCondition.REPLICAS_READY: frozenset(
        {ScheduleReason.NOT_KEPT, ScheduleReason.NONE_NEEDED, ScheduleReason.REPLICAS_STARTING,
         ScheduleReason.REPLICAS_IN_USE, ScheduleReason.REPLICAS_IDLE, ScheduleReason.REPLICAS_LEAVING}
    ),
}  # fmt: skip
"""The reasons that each condition can have."""

Digest = Annotated[str, Field(min_length=10, max_length=64, pattern=r"^[0-9a-f]+$")]
"""Hexadecimal digits of the SHA-256 over a checkpoint's files."""
Place = Annotated[str, Field(max_length=1024)]


class Checkpoint(ApiModel):
    """A checkpoint, as it was found."""

    url: Place = Field(description="The directory with the model.")
    step: Step = Field(description="The training step.")
    digest: Digest = Field(description="Digest of the files; it changes when they are rewritten.")


class GoodCheckpoint(Checkpoint):
    """A checkpoint whose run ended with results, and whose gates did not fail."""

    output_url: Place | None = Field(None, alias="outputURL", description="Where its results are.")


class BestCheckpoint(GoodCheckpoint):
    """The best checkpoint of a race so far."""

    rivals: list[Step] = Field(
        [],
        max_length=MAX_RIVALS,
        description="Steps of the newest checkpoints that could not be told apart from the best one of their time, as "
        "answers were not judged or can be forged.",
        json_schema_extra=list_type("set"),
    )


class EvaluatedDigest(ApiModel):
    """A checkpoint that has a run."""

    digest: Digest = Field(description="The checkpoint's digest.")
    step: Step = Field(description="The training step.")
    run_uid: str | None = Field(
        None, max_length=64, description="The uid of its run; another run of that name is not the schedule's."
    )


class Evaluated(ApiModel):
    """The checkpoints that have a run; kept after the runs are deleted."""

    high_water_step: Step | None = Field(
        None, description="Checkpoints up to this step are never evaluated again: their digests are no longer stored."
    )
    digests: list[EvaluatedDigest] = Field(
        [],
        max_length=MAX_EVALUATED,
        description="Checkpoints above highWaterStep that have a run.",
        json_schema_extra=list_type("map", "digest"),
    )


class OpenStart(ApiModel):
    """A start in progress; it survives a restart of the operator."""

    time: AwareDatetime = Field(description="When it was due.")
    trigger: str | None = Field(None, max_length=256, description="For a start by hand: the annotation's value.")
    looks: Count = Field(0, description="How often the checkpoints were listed for it, failures included.")
    failures: Count = Field(0, description="Failed listings in a row.")
    listed: bool = Field(default=False, description="The checkpoints were listed for it at least once.")
    next_look_time: AwareDatetime | None = Field(None, description="When to list again; unset: at once.")
    job: str | None = Field(None, max_length=63, description="The Job that lists the checkpoints, while it exists.")


class RunUsage(ApiModel):
    """GPU hours of a run."""

    run: str = Field(max_length=63, description="The run's name; of many that are deleted, their sum a day.")
    day: str = Field(max_length=10, description="The day of its start, in the schedule's time zone.")
    gpu_hours: Figure = Field(alias="gpuHours", description="GPUs times hours from start to release.")
    final: bool = Field(default=False, description="The GPUs have been released.")


class TroubledCheckpoint(ApiModel):
    """A checkpoint that has no run yet because of a problem."""

    name: str = Field(max_length=255, description="Its directory's name.")
    broken: bool = Field(description="It is complete, but lacks something; otherwise it is still being written.")
    reason: str = Field(max_length=512, description="What is missing.")


class PendingMerge(ApiModel):
    """A checkpoint whose shards are merged before it gets its run."""

    path: Place = Field(description="The directory of its shards, below checkpoints.url.")
    step: Step = Field(description="The training step.")
    digest: Digest = Field(description="Digest of its files.")
    start: AwareDatetime = Field(description="The start that chose it.")
    trigger: str | None = Field(None, max_length=256, description="For a start by hand: the annotation's value.")
    parent: Annotated[str, Field(max_length=63)] | None = Field(None, description="The run of the previous checkpoint.")
    adapter: bool = Field(default=False, description="The merger makes a LoRA adapter of the shards.")
    failures: Count = Field(0, description="Failed attempts in a row.")
    merged: bool = Field(default=False, description="The model is in the cache; its run could not be created yet.")
    next_time: AwareDatetime | None = Field(None, description="When to try again; unset: at once.")


class LatestResult(ApiModel):
    """The newest checkpoint whose run has ended with results."""

    run: str = Field(max_length=63, description="The run's name.")
    step: Step = Field(description="The training step.")
    gate: Literal["True", "False", "Unknown"] | None = Field(
        None, description="Its condition GatePassed; unset without a gate."
    )
    datasets: list[DatasetStatus] = Field(
        [], max_length=16, description="Its figures.", json_schema_extra=list_type("map", "name")
    )


class PaidTurn(ApiModel):
    """What a run pays of the GPU seconds of a RayCluster that the schedule keeps."""

    run: str = Field(max_length=63, description="The run's name; of the first ones of very many, their sum.")
    run_uid: Annotated[str, Field(max_length=64)] | None = Field(None, description="Its uid.")
    output_tokens: Count = Field(0, description="Output tokens that it drew on this RayCluster.")
    turn_gpu_seconds: Count = Field(0, alias="turnGPUSeconds", description="GPU seconds of its turns.")
    use_gpu_seconds: Count = Field(
        0, alias="useGPUSeconds", description="Those in which an answer of it was being drawn: it pays them itself."
    )
    start_gpu_seconds: Count = Field(
        0,
        alias="startGPUSeconds",
        description="Its share, by output tokens, of the seconds until the first turn and of those in turns in which "
        "no answer was drawn: the engine started, or took weights.",
    )
    idle_gpu_seconds: Count = Field(
        0, alias="idleGPUSeconds", description="Its share, by output tokens, of the seconds between and after turns."
    )
    tokens_before: Count = Field(0, description="Output tokens that it had drawn elsewhere before.")
    seconds_before: Count = Field(0, description="Seconds for which it had generated elsewhere before.")


class KeptCosts(ApiModel):
    """Costs of the current or last RayCluster, divided among the runs."""

    cluster: str = Field(max_length=63, description="The RayCluster.")
    start_gpu_seconds: Count = Field(
        0, alias="startGPUSeconds", description="GPU seconds until the first turn: nobody's alone."
    )
    idle_gpu_seconds: Count = Field(0, alias="idleGPUSeconds", description="GPU seconds between and after turns.")
    settled: bool = Field(
        default=False, description="The RayCluster is gone. Until then each further turn makes the others' shares less."
    )
    runs: list[PaidTurn] = Field(
        [], max_length=MAX_PAID, description="The runs that had their turn on it, the first one first."
    )


class KeptReplicas(ApiModel):
    """The replicas that the schedule keeps; written down before each step is taken."""

    number: Count = Field(0, description="RayClusters so far; it is part of their names.")
    cluster: Annotated[str, Field(max_length=63)] | None = Field(
        None, description="The RayCluster; unset while no GPU is held."
    )
    cluster_uid: Annotated[str, Field(max_length=64)] | None = Field(
        None, description="Its uid; unset until it is made."
    )
    image: Annotated[str, Field(max_length=512)] | None = Field(
        None, description="Its image, which the runs' generators have too."
    )
    head: Annotated[str, Field(max_length=128)] | None = Field(
        None, description="The life of its head that runs were given; another one knows none of the replicas."
    )
    crashed: Annotated[str, Field(max_length=63)] | None = Field(
        None, description="The last RayCluster whose head ended in a run's turn: that run's attempt has failed by it."
    )
    seen_head: Annotated[str, Field(max_length=128)] | None = Field(
        None, description="The life of its head that was seen last, before the first turn too."
    )
    crashes: Count = Field(
        0, description="Heads of all RayClusters that crashed or restarted by themselves: before, in and between turns."
    )
    auth: Literal["token", "disabled"] | None = Field(
        None, description="Whether its Ray has a token, which the runs' generators join it with."
    )
    leaving: Annotated[str, Field(max_length=256)] | None = Field(None, description="Why the RayCluster is deleted.")
    holder: Annotated[str, Field(max_length=63)] | None = Field(None, description="The run whose turn it is.")
    holder_uid: Annotated[str, Field(max_length=64)] | None = Field(None, description="The uid of that run.")
    served: Count = Field(0, description="Runs that had their turn on this RayCluster.")
    since: AwareDatetime | None = Field(
        None,
        description="When the present state began: in use by this run, or idle; of replicas that start, when a run was "
        "last written down that waits for them.",
    )
    start_gpu_seconds: Count = Field(
        0, alias="startGPUSeconds", description="GPU seconds of all RayClusters until their first turn."
    )
    use_gpu_seconds: Count = Field(0, alias="useGPUSeconds", description="GPU seconds of all turns.")
    idle_gpu_seconds: Count = Field(0, alias="idleGPUSeconds", description="GPU seconds between and after turns.")
    costs: KeptCosts | None = Field(None, description="What each run pays; the turn that goes on is not in it yet.")


class EvalScheduleStatus(ApiModel):
    """The status of the schedule, as the operator observed it."""

    observed_generation: Count | None = Field(None, description="The generation of the spec that was last acted on.")
    conditions: list[Condition] = Field(
        [],
        max_length=16,
        description="Accepted, Discovered, Sound, Merged, Started, GatePassed, Suspended, ReplicasReady.",
        json_schema_extra=list_type("map", "type"),
    )
    reason: Annotated[str, Field(max_length=64)] | None = Field(
        None, description="The result of the last start, in one word."
    )
    last_schedule_time: AwareDatetime | None = Field(None, description="The last start that was handled.")
    next_schedule_time: AwareDatetime | None = Field(None, description="When the next start is due.")
    last_trigger: str | None = Field(
        None, max_length=256, description="The value of the annotation evalrun.dev/trigger that was last acted on."
    )
    start: OpenStart | None = Field(None, description="The start in progress.")
    listings: Count = Field(0, description="Number of listing Jobs so far; it is part of their names.")
    active: list[Annotated[str, Field(max_length=63)]] = Field(
        [], max_length=MAX_ACTIVE, description="Runs that have not ended.", json_schema_extra=list_type("set")
    )
    evaluated: Evaluated = Field(Evaluated(), description="The checkpoints that have a run.")
    merges: list[PendingMerge] = Field(
        [],
        max_length=MAX_MERGES,
        description="Checkpoints that are merged, one at a time, before they get a run.",
        json_schema_extra=list_type("map", "digest"),
    )
    last_checkpoint: Checkpoint | None = Field(None, description="The newest checkpoint that has a run.")
    last_good: GoodCheckpoint | None = Field(
        None, description="The newest checkpoint with results whose gates did not fail."
    )
    best: BestCheckpoint | None = Field(
        None, description="With race: the best checkpoint so far. A later one that is as good takes its place."
    )
    latest_result: LatestResult | None = Field(None, description="The newest checkpoint with results.")
    troubled: list[TroubledCheckpoint] = Field(
        [],
        max_length=MAX_TROUBLED,
        description="Checkpoints that have no run yet because of a problem.",
        json_schema_extra=list_type("map", "name"),
    )
    usage: list[RunUsage] = Field(
        [],
        max_length=MAX_USAGE,
        description="GPU hours of the runs of today and yesterday.",
        json_schema_extra=list_type("map", "run"),
    )
    last_run_gpu_hours: Figure | None = Field(
        None, alias="lastRunGPUHours", description="GPU hours of the last run that was measured."
    )
    replicas: KeptReplicas | None = Field(None, description="The replicas that the schedule keeps.")
    checkpoint: Annotated[str, Field(max_length=64)] | None = Field(None, description="For the column CHECKPOINT.")
    good: Annotated[str, Field(max_length=64)] | None = Field(None, description="For the column LAST-GOOD.")
    best_step: Annotated[str, Field(max_length=64)] | None = Field(None, description="For the column BEST.")
    gate: Annotated[str, Field(max_length=64)] | None = Field(None, description="For the column GATE.")
    next: Annotated[str, Field(max_length=64)] | None = Field(None, description="For the column NEXT, in timeZone.")


def schedule_condition(status: EvalScheduleStatus, kind: ScheduleCondition) -> Condition | None:
    """Return a condition of a status."""
    return next((condition for condition in status.conditions if condition.type == kind), None)
