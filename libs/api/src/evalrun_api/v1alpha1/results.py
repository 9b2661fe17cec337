"""Storage, export and cost of a run's results."""

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field

from evalrun_api.api_model import (
    NO_CREDENTIALS_RULE,
    PLACE_RULES,
    URL_RULE,
    ApiModel,
    DecimalText,
    DnsName,
    Quantity,
    Resources,
    Rule,
    SecretKeyReference,
    SecretReference,
    list_type,
)


class Storage(ApiModel):
    """The volume of the run's ledger. Block storage: SQLite's WAL corrupts on network file systems."""

    size: Annotated[
        Quantity,
        Field(description="Size of the claim."),
        Rule(
            "!self.matches('^[0.]+([^0-9.].*)?$')", 'a volume of nothing holds no ledger: write a size such as "10Gi"'
        ),
    ] = "10Gi"
    class_name: DnsName | None = Field(
        None, description="StorageClass of block storage; unset: the cluster's default. Checked at start."
    )


class Aggregator(ApiModel):
    """The aggregator's StatefulSet."""

    storage: Storage = Field(Storage(), description="The volume of the run's ledger.")
    resources: Resources | None = Field(
        None, description="Resources of the aggregator's container; unset: the chart's."
    )
    keep_seconds_after_finished: int = Field(
        60,
        ge=0,
        le=604_800,
        description="Seconds for which the aggregator, with its CPU and memory, stays available after the end; the "
        "outputs are written before.",
    )


class Output(ApiModel):
    """Destination of the results."""

    url: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=1024,
            description="A directory as an fsspec URL: s3://..., gs://..., pvc://CLAIM/DIR; without a cluster also a "
            "path.",
        ),
        *PLACE_RULES,
        Rule(
            "self.contains('://') && !self.startsWith('file://')",
            "a path of your machine means nothing in a pod: write s3://..., gs://... or pvc://CLAIM/DIR",
            place="cluster",
        ),
        Rule(
            "!self.matches('^https?://')",
            "a web server takes no results: write s3://..., gs://... or pvc://CLAIM/DIR",
        ),
    ] = None
    retain: bool = Field(default=False, description="Keep the aggregator's volume when the EvalRun is deleted.")
    retain_completions_days: int | None = Field(
        None,
        ge=0,
        le=36_500,
        description="Days after the run's end during which answers, programs and what they printed are kept in the "
        "outputs; figures and verdicts stay. `evalrun prune`, and the chart's CronJob `retention`, remove the rest. "
        "Unset: no limit.",
    )
    credentials_secret_ref: SecretReference | None = Field(
        None,
        description="Environment variables of the containers that read or write buckets for the run (output, datasets, "
        "a model at s3:// or gs://), e.g. AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    )


class Attest(ApiModel):
    """Signature of the results."""

    key_secret_ref: SecretKeyReference = Field(
        description="An Ed25519 key as PEM, from openssl genpkey -algorithm ed25519. Results and a bundle that others "
        "can verify are signed with it."
    )


class Wandb(ApiModel):
    """Weights & Biases."""

    project: str = Field(min_length=1, max_length=128, description="The project that receives the run.")
    entity: str | None = Field(None, min_length=1, max_length=128, description="User or team; unset: the key's own.")
    name: str | None = Field(
        None, min_length=1, max_length=128, description="The run's name there; unset: the EvalRun's."
    )
    group: str | None = Field(
        None, min_length=1, max_length=128, description="The group of the run; unset: the namespace."
    )
    tags: list[Annotated[str, Field(min_length=1, max_length=64)]] = Field(
        [], max_length=16, description="Tags of the run, for filtering.", json_schema_extra=list_type("set")
    )
    mode: Literal["online", "offline", "disabled"] = Field(
        "online", description="offline: files beside the outputs, for `wandb sync`; disabled: nothing is exported."
    )
    secret_ref: SecretKeyReference | None = Field(None, description="The API key; required with mode: online.")

    RULES = (
        Rule(
            "self.mode != 'online' || has(self.secretRef)",
            "mode: online needs the API key: write secretRef, or mode: offline",
            ".secretRef",
            place="cluster",
        ),
    )


class Mlflow(ApiModel):
    """MLflow tracking."""

    tracking_uri: Annotated[
        str,
        Field(
            alias="trackingURI",
            min_length=1,
            max_length=1024,
            description="The tracking server's URL; without a cluster also file:///DIRECTORY.",
        ),
        Rule("self.matches('^(https?://[^/]|file:///)')", "write the server's URL, e.g. http://mlflow.tools:5000"),
        URL_RULE,
        Rule(
            "!self.startsWith('file:')",
            "a directory is kept on one machine only: write the server's URL, e.g. http://mlflow.tools:5000",
            place="cluster",
        ),
        NO_CREDENTIALS_RULE,
    ]
    secret_ref: SecretReference | None = Field(
        None, description="Environment variables of the client, e.g. MLFLOW_TRACKING_TOKEN."
    )


class Exports(ApiModel):
    """Other systems that receive the figures."""

    wandb: Wandb | None = Field(None, description="Weights & Biases; unset: not used.")
    mlflow: Mlflow | None = Field(None, description="MLflow; unset: not used.")
    prometheus: bool = Field(default=True, description="Let Prometheus scrape the run's services.")


class Cost(ApiModel):
    """Prices of what the run uses."""

    gpu_hour: DecimalText | None = Field(
        None, description='Price of one GPU for an hour, in quotes: "2.50"; unset: not counted.'
    )
    cpu_hour: DecimalText | None = Field(
        None,
        description="Price of an hour of CPU time that judged programs used, in quotes; idle sandboxes are not in it. "
        "Unset: not counted.",
    )
    currency: str = Field("USD", max_length=3, pattern=r"^[A-Z]{3}$", description="ISO 4217 code.")

    RULES = (Rule("has(self.gpuHour) || has(self.cpuHour)", "write a price: gpuHour, cpuHour, or both"),)

    @property
    def gpu_hour_value(self) -> Decimal | None:
        """`gpuHour` as a number."""
        return None if self.gpu_hour is None else Decimal(self.gpu_hour)

    @property
    def cpu_hour_value(self) -> Decimal | None:
        """`cpuHour` as a number."""
        return None if self.cpu_hour is None else Decimal(self.cpu_hour)
