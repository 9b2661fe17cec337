"""The EvalSchedule: looks for new checkpoints at scheduled times and evaluates each of them once."""

from decimal import ROUND_CEILING, Decimal
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from evalrun_api.api_model import (
    PLACE_RULES,
    ApiModel,
    DatasetName,
    DecimalText,
    Resources,
    Rule,
    SecretKeyReference,
    list_type,
)
from evalrun_api.v1alpha1.evalrun import API_VERSION, HOST_NAME_RULE, ObjectMeta
from evalrun_api.v1alpha1.schedule_status import EvalScheduleStatus
from evalrun_api.v1alpha1.spec import ADAPTER_RULE, NO_LAST_GOOD_RULE, EvalRunSpec

SCHEDULE_KIND: Final = "EvalSchedule"
MAX_SCHEDULE_NAME: Final = 19
"""A run is called SCHEDULE-DIGEST, with 10 hexadecimal digits, and an EvalRun's name has at most 30 characters."""
MAX_PER_TICK: Final = 16
MAX_RACE: Final = 100
RACE_ERROR: Final = Decimal("0.05")
"""The probability with which a race may lose the best checkpoint."""


class Checkpoints(ApiModel):
    """The directory of a training's checkpoints, and the rule that selects checkpoints to evaluate."""

    url: Annotated[
        str,
        Field(
            min_length=1,
            max_length=512,
            description="The directory that holds the checkpoints' directories: s3://..., gs://..., pvc://CLAIM/DIR.",
        ),
        *PLACE_RULES,
        Rule(
            "self.contains('://') && !self.startsWith('file://')",
            "a path of your machine means nothing in a pod: write s3://..., gs://... or pvc://CLAIM/DIR",
            place="cluster",
        ),
        Rule("!self.matches('^https?://')", "a web server lists no directories: write s3://..., gs://... or pvc://..."),
    ]
    pattern: Annotated[
        str,
        Field(
            min_length=1,
            max_length=128,
            description="Names of the checkpoints' directories, with * and ?: global_step_* (verl), checkpoint-* "
            "(Hugging "
            "Face). The last number in a name is its step.",
        ),
        Rule("!self.contains('/')", "is the name of one directory below url: write it without '/', e.g. global_step_*"),
        Rule("!self.matches('[[:cntrl:]]')", "holds a control character: write e.g. global_step_*"),
    ] = "*"
    policy: Literal["Latest", "EveryNew"] = Field(
        "Latest",
        description="Latest: the newest sound checkpoint, if it has not been evaluated. EveryNew: every checkpoint "
        "that has not been evaluated, in the order of the steps.",
    )
    max_per_tick: int = Field(
        4, ge=1, le=MAX_PER_TICK, description="With EveryNew: maximum number of checkpoints that one start evaluates."
    )
    ready_marker: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=128,
            description="A file inside each checkpoint's directory that the trainer writes last, e.g. DONE. Unset: the "
            "trainer's own tracker file (verl); without one, every file must exist and be unchanged for "
            "quietSeconds.",
        ),
        Rule(
            "!self.startsWith('/') && !self.matches('(^|/)[.][.](/|$)') && !self.matches('[[:cntrl:]]')",
            "write the file's path inside the checkpoint's directory, e.g. DONE",
        ),
    ] = None
    quiet_seconds: int = Field(
        300,
        ge=0,
        le=86_400,
        description="Without readyMarker and tracker file: seconds without a write after which a checkpoint counts as "
        "complete.",
    )


class DailyBudget(ApiModel):
    """Limit on what the schedule may use."""

    gpu_hours_per_day: DecimalText = Field(
        alias="gpuHoursPerDay",
        description='GPU hours a day (in timeZone), in quotes: "64". A run is started if the hours used today plus '
        "those of the last measured run do not exceed the limit. The first run always starts.",
    )

    @property
    def gpu_hours_per_day_value(self) -> Decimal:
        """`gpuHoursPerDay` as a number."""
        return Decimal(self.gpu_hours_per_day)


class Merge(ApiModel):
    """Merges verl's FSDP shards into a model before its run, with verl's own merger in a Job of the Ray image."""

    cache: Annotated[
        str,
        Field(
            min_length=1,
            max_length=512,
            description="The directory that keeps merged models: s3://..., gs://..., pvc://CLAIM/DIR. Each schedule "
            "has "
            "its own directory in it.",
        ),
        *PLACE_RULES,
        Rule(
            "self.contains('://') && !self.startsWith('file://') && !self.matches('^https?://')",
            "merged models are written there: write s3://..., gs://... or pvc://CLAIM/DIR",
        ),
    ]
    keep: int = Field(
        3, ge=1, le=64, description="Merged models that are kept, the newest by step, besides those of active runs."
    )
    resources: Resources | None = Field(
        None,
        description="Resources of the merger; unset: 4 CPUs and the memory of a Ray worker. It holds all shards and "
        "the model in memory at once.",
    )


class Race(ApiModel):
    """Finds the best checkpoint: each one is compared with the best so far, and stopped once it is clearly behind."""

    dataset: DatasetName = Field(description="The dataset of the template whose accepted_at_1 decides.")
    checkpoints: int = Field(
        10,
        ge=2,
        le=MAX_RACE,
        description="Number of checkpoints among which the best one is taken for a worse one with a probability of at "
        "most 5 %. The more, the later each is decided.",
    )
    allow_forgeable: bool = Field(
        default=False,
        description="Decide by verdicts, too, that a program could have forged, such as those of tests that run in its "
        "process.",
    )

    @property
    def confidence(self) -> str:
        """Confidence of a single comparison. The best checkpoint takes part in at most `checkpoints` comparisons; each
        is wrong to its loss with a probability of half of 1 - confidence."""
        return str((1 - 2 * RACE_ERROR / self.checkpoints).quantize(Decimal("0.0001"), ROUND_CEILING))


class Keep(ApiModel):
    """How long replicas stay."""

    idle_seconds: int = Field(
        120,
        ge=0,
        le=86_400,
        description="Seconds for which replicas that no run waits for stay. 0: they go as soon as none waits.",
    )
    max_checkpoints: int = Field(
        100, ge=1, le=10_000, description="Runs after which the replicas are started anew, engine, pods and all."
    )


class Replicas(ApiModel):
    """The replicas of the runs, as the schedule's own: they outlive a run and take the next checkpoint's weights."""

    keep: Keep = Field(Keep(), description="How long they stay.")


class TemplateModel(ApiModel):
    """Options for loading each checkpoint; the path is the checkpoint's own."""

    base: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=1024,
            description="The model that checkpoints which are LoRA adapters are served on: a hub id, or a directory "
            "as in "
            "model.path of an EvalRun. Whole models are evaluated without it.",
        ),
        *PLACE_RULES,
        Rule(
            "!self.startsWith('/') && !self.startsWith('.') && !self.startsWith('file:')",
            "a path of your machine means nothing in a pod: write a hub id, pvc://CLAIM/DIR, s3://... or gs://...",
            place="cluster",
        ),
    ] = None
    trust_remote_code: bool = Field(
        default=False, description="Run Python code that comes with the checkpoint. Only for models that you trust."
    )
    token_secret_ref: SecretKeyReference | None = Field(None, description="The hub's access token, if one is needed.")


class RunTemplate(EvalRunSpec):
    """The spec of each run, except what the schedule fills in: the model's path and the lineage."""

    model: TemplateModel = Field(  # type: ignore[assignment]  # the one field that a template has otherwise
        TemplateModel(), description="Options for loading each checkpoint. Leave out path: the schedule fills it in."
    )

    RULES = (
        *(rule for rule in EvalRunSpec.RULES if rule not in (ADAPTER_RULE, NO_LAST_GOOD_RULE)),
        Rule(
            "!has(self.endpoints)",
            "servers that answer already hold whatever model they were started with, not the checkpoint: write rollout",
            ".endpoints",
        ),
        Rule(
            "!has(self.lineage) || (!has(self.lineage.schedule) && !has(self.lineage.step) && "
            "!has(self.lineage.parent))",
            "the schedule writes lineage.schedule, step and parent itself: write lineage.phase alone",
            ".lineage",
        ),
    )


class EvalScheduleSpec(ApiModel):
    """The times, the directory of the checkpoints, and how each of them is evaluated."""

    MAX_BYTES: ClassVar[int | None] = 64 * 1024

    schedule: Annotated[
        str,
        Field(
            min_length=9,
            max_length=128,
            description='When to start, as a cron expression: minute, hour, day, month, weekday. "0 3 * * *": at 3 '
            "every night. If a clock change skips the time, the start comes right after it; a repeated time starts "
            "once.",
        ),
        Rule(
            "self.matches('^[0-9A-Za-z*/,#-]+( [0-9A-Za-z*/,#-]+){4}$')",
            "write five fields with one blank between them: minute hour day month weekday, e.g. 0 3 * * *",
        ),
    ]
    time_zone: Annotated[
        str,
        Field(min_length=1, max_length=64, description="The schedule's time zone, e.g. Europe/Berlin."),
        Rule(
            "self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}$') && self != 'Local'",
            "write a name of the IANA time zone database, e.g. Europe/Berlin or Etc/UTC",
        ),
    ] = "Etc/UTC"
    checkpoints: Checkpoints = Field(description="Where the training writes its checkpoints.")
    concurrency_policy: Literal["Allow", "Forbid", "Replace"] = Field(
        "Forbid",
        description="What to do if runs of an earlier start are still active. Allow: start more. Forbid: wait until "
        "they have ended, at most until the next start. Replace: delete them, but none that was asked for by hand.",
    )
    starting_deadline_seconds: int | None = Field(
        None,
        ge=10,
        le=31_536_000,
        description="Seconds after its scheduled time at which a start counts as missed. Unset: when the next one is "
        "due.",
    )
    suspend: bool = Field(
        default=False,
        description="Start nothing at scheduled times. Active runs continue, and a start requested by hand still "
        "happens.",
    )
    successful_runs_history_limit: int = Field(
        3, ge=0, le=100, description="Runs with results whose objects are kept; outputs stay where output says."
    )
    failed_runs_history_limit: int = Field(1, ge=0, le=100, description="Failed runs whose objects are kept.")
    merge: Merge | None = Field(
        None, description="Merge verl's FSDP shards; unset: such a checkpoint counts as broken."
    )
    budget: DailyBudget | None = Field(None, description="Limit on what the schedule may use; unset: no limit.")
    race: Race | None = Field(None, description="Find the best checkpoint; unset: measure each one whole.")
    replicas: Replicas | None = Field(
        None,
        description="Keep the replicas from one run to the next, which has its checkpoint put into them; unset: each "
        "run starts its own.",
    )
    allow_test_role: list[DatasetName] = Field(
        [],
        max_length=64,
        description="Datasets of role test that the schedule may use nevertheless. Results that people see every night "
        "influence tuning.",
        json_schema_extra=list_type("set"),
    )
    template: RunTemplate = Field(description="The spec of each run.")

    RULES = (
        Rule(
            "self.template.datasets.all(d, !has(d.role) || d.role != 'test' || d.name in self.allowTestRole)",
            "test data is for the end of a phase, and what is looked at every night is used for tuning: take a dev "
            "dataset, or list the name in allowTestRole",
            ".template.datasets",
        ),
        Rule(
            "has(self.template.output.url) || self.successfulRunsHistoryLimit > 0",
            "with retain alone each run's results lie on a volume of its own, which nobody finds without the run: "
            "write template.output.url or successfulRunsHistoryLimit above 0",
            ".template.output",
        ),
        Rule(
            "!has(self.race) || self.template.datasets.exists(d, d.name == self.race.dataset)",
            "is no dataset of the template: write the name of one",
            ".race.dataset",
        ),
        Rule(
            "!has(self.race) || has(self.template.output.url)",
            "a race compares with the results of the best checkpoint so far: write template.output.url",
            ".race",
        ),
        Rule(
            "!has(self.race) || (self.concurrencyPolicy == 'Forbid' && (self.checkpoints.policy == 'Latest' || "
            "self.checkpoints.maxPerTick == 1))",
            "a race compares one checkpoint after another: write concurrencyPolicy: Forbid and, with EveryNew, "
            "checkpoints.maxPerTick: 1",
            ".race",
        ),
        Rule(
            "!has(self.race) || !has(self.template.rollout) || self.template.rollout.loadFormat != 'dummy'",
            "figures of dummy weights are worthless: remove race, or write loadFormat: auto",
            ".race",
        ),
        Rule(
            "!has(self.race) || size(self.template.gates) == 0",
            "a race decides by a gate of its own: remove template.gates, or race",
            ".race",
        ),
        Rule(
            "!has(self.race) || self.template.datasets.all(d, d.name != self.race.dataset || (d.judgeMode == 'RunCode' "
            "&& d.purpose == 'Evaluation'))",
            "results of judgeMode: Submit can be forged and decide no race, and purpose: Sampling has no figures: "
            "write judgeMode: RunCode and purpose: Evaluation for this dataset",
            ".race.dataset",
        ),
        Rule(
            "!has(self.race) || self.template.protocol.name != 'EVAL@turns'",
            "a race stops a run by first answers, EVAL@turns is about later ones: write another protocol, or remove "
            "race",
            ".race",
        ),
        Rule(
            "!has(self.replicas) || has(self.template.rollout)",
            "there are no replicas to keep: write template.rollout, or remove replicas",
            ".replicas",
        ),
        Rule(
            "!has(self.replicas) || (self.checkpoints.url.startsWith('pvc://') && (!has(self.merge) || "
            "self.merge.cache.startsWith('pvc://')))",
            "kept replicas read checkpoints from a volume, since a bucket's are fetched when a pod starts: write "
            "pvc://CLAIM/DIR for checkpoints.url, and for merge.cache, or remove replicas",
            ".replicas",
        ),
        Rule(
            "!has(self.replicas) || !has(self.template.rollout) || (self.template.rollout.engine == 'vllm' && "
            "self.template.rollout.loadFormat in ['auto', 'safetensors'])",
            "only vLLM takes another checkpoint's weights, and from safetensors files: write engine: vllm and "
            "loadFormat: auto, or remove replicas",
            ".template.rollout",
        ),
        Rule(
            "!has(self.replicas) || !has(self.template.rollout) || !has(self.template.rollout.minReplicas)",
            "kept replicas are a fixed number: write replicas instead of minReplicas and maxReplicas, or remove "
            "spec.replicas",
            ".template.rollout",
        ),
        Rule(
            "!has(self.replicas) || !has(self.template.rollout) || !has(self.template.rollout.queueName)",
            "idle replicas would hold the queue's quota: remove queueName, or spec.replicas",
            ".template.rollout.queueName",
        ),
        Rule(
            "!has(self.replicas) || !has(self.template.model) || (!has(self.template.model.base) && "
            "!self.template.model.trustRemoteCode)",
            "kept replicas serve whole checkpoints, and code that comes with one would go on beside the next: remove "
            "base and trustRemoteCode, or spec.replicas",
            ".template.model",
        ),
        Rule(
            "!has(self.replicas) || !has(self.budget)",
            "GPU hours of kept replicas are no run's own, and the budget counts runs: remove budget, or replicas",
            ".budget",
        ),
    )


class EvalSchedule(ApiModel):
    """Evaluates every new checkpoint of a training once, at scheduled times."""

    api_version: Literal["evalrun.dev/v1alpha1"] = Field(API_VERSION, description="Group and version.")
    kind: Literal["EvalSchedule"] = Field(SCHEDULE_KIND, description="Kind of the object.")
    metadata: ObjectMeta = Field(description="The object's metadata.")
    spec: EvalScheduleSpec = Field(
        description="The times, the directory of the checkpoints, and how each of them is evaluated."
    )
    status: EvalScheduleStatus | None = Field(
        None, description="What the operator observed; only the operator writes it."
    )

    RULES = (
        Rule(
            f"size(self.metadata.name) <= {MAX_SCHEDULE_NAME}",
            "metadata.name is too long for the names of the runs, which add 11 characters: write at most "
            f"{MAX_SCHEDULE_NAME}",
            ".metadata.name",
        ),
        HOST_NAME_RULE,
    )

    @classmethod
    def from_wire(cls, manifest: dict[str, Any]) -> "EvalSchedule":
        """Read an object that the API server has validated.

        Raises:
            pydantic.ValidationError: it was not valid after all.
        """
        return cls.model_validate(manifest)
