"""The status of a run: only the operator writes it, once in each pass."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from evalrun_api.api_model import ApiModel, list_type
from evalrun_api.v1alpha1.conditions import ConditionType

Phase = Literal["Pending", "Preparing", "Generating", "Judging", "Succeeded", "Degraded", "Failed", "Suspended"]
"""The conditions in one word, for people; programs read the conditions."""

COUNT_LIMIT = 1_000_000_000_000
Count = Annotated[int, Field(ge=0, le=COUNT_LIMIT)]
Figure = Annotated[str, Field(max_length=32)]
"""A number in its printed form."""


class Condition(ApiModel):
    """An aspect of the run; types and reasons are in `conditions`."""

    type: str = Field(max_length=64, description="What the condition is about.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: str = Field(max_length=64, description="Why, in one documented word.")
    message: str = Field(max_length=4096, description="Why, for people, and what to do.")
    observed_generation: Count | None = Field(
        None, description="The generation of the spec that the condition describes."
    )
    last_transition_time: AwareDatetime = Field(description="When status last changed.")


class FigureInterval(ApiModel):
    """A 95 % interval."""

    low: Figure = Field(description="Lower bound.")
    high: Figure = Field(description="Upper bound.")


class DatasetStatus(ApiModel):
    """Progress and result of a dataset."""

    name: str = Field(max_length=63, description="The dataset's name.")
    total: Count = Field(0, description="Answers to draw.")
    generated: Count = Field(0, description="Answers in the ledger.")
    judged: Count = Field(0, description="Answers with a verdict.")
    not_judged: Count = Field(0, description="Answers that the judge could not decide.")
    cancelled: Count = Field(0, description="Answers not needed after the gates decided; in no other count.")
    accepted_at_1: Figure | None = Field(None, alias="acceptedAt1", description="Share of accepted answers.")
    interval: FigureInterval | None = Field(None, description="Interval of acceptedAt1.")


class EvalRunStatus(ApiModel):
    """The status of the run, as the operator observed it."""

    observed_generation: Count | None = Field(None, description="The generation of the spec that was last acted on.")
    conditions: list[Condition] = Field(
        [],
        max_length=16,
        description="Accepted, Applied, Admitted, Stalled, ClusterReady, Generated, Judged, Degraded, Suspended, "
        "GatePassed, Attested, Succeeded, Complete.",
        json_schema_extra=list_type("map", "type"),
    )
    phase: Phase | None = Field(None, description="The conditions in one word, for people.")
    reason: Annotated[str, Field(max_length=64)] | None = Field(
        None, description="Why the run is in this phase: the reason of the most important condition."
    )
    attempts: Annotated[int, Field(ge=0, le=1000)] = Field(0, description="Generator attempts so far.")
    start_time: AwareDatetime | None = Field(None, description="When the operator first created an object for the run.")
    generation_completed_time: AwareDatetime | None = Field(
        None, description="When every completion was in the ledger and the GPUs were released."
    )
    completion_time: AwareDatetime | None = Field(None, description="When the run reached its end state.")
    ray_cluster_name: str | None = Field(None, max_length=253, description="The RayCluster of the current attempt.")
    datasets: list[DatasetStatus] = Field(
        [],
        max_length=16,
        description="Progress and result by dataset.",
        json_schema_extra=list_type("map", "name"),
    )
    output_url: str | None = Field(
        None, alias="outputURL", max_length=1024, description="Where the outputs are, once written."
    )
    baseline_url: str | None = Field(
        None,
        alias="baselineURL",
        max_length=1024,
        description="Where the gate's baseline is, if the spec names an EvalRun; looked up once, at the start.",
    )
    settings: dict[str, Annotated[str, Field(max_length=4096)]] = Field(
        {},
        max_length=64,
        description="The operator's images, versions and defaults as they were when the run started. The run keeps "
        "them when the operator is upgraded.",
    )
    stopped_early: Annotated[str, Field(max_length=1024)] | None = Field(
        None, description="How far the run got before its gates decided; unset: it was not stopped early."
    )
    wandb_url: str | None = Field(None, alias="wandbURL", max_length=1024, description="The run at Weights & Biases.")
    progress: Figure | None = Field(None, description="Judged answers out of all, e.g. 120/646.")
    accepted_at_1: Figure | None = Field(
        None, alias="acceptedAt1", description="pass@1 of the dataset humaneval; without it, of the first dataset."
    )
    not_judged: Figure | None = Field(None, description="Answers that the judge could not decide.")
    output_tokens: Count | None = Field(None, description="Output tokens of all answers so far.")
    generating_seconds: Count | None = Field(None, description="Seconds in which at least one answer was being drawn.")
    tokens_per_second: Figure | None = Field(None, description="Output tokens per second.")
    problems_per_second: Figure | None = Field(None, description="Judged problems per second.")
    gpu_seconds_per_solved: Figure | None = Field(None, description="GPU seconds per solved problem.")


def find_condition(status: EvalRunStatus, kind: ConditionType) -> Condition | None:
    """Return a condition of a status."""
    return next((condition for condition in status.conditions if condition.type == kind), None)
