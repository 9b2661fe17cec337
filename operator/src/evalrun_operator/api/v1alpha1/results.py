"""What becomes of the results: where they are kept, exported, gated and priced."""

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field

from evalrun_operator.api.modelling import (
    NO_CREDENTIALS_RULE,
    PVC_RULE,
    ApiModel,
    DatasetName,
    DecimalText,
    DnsName,
    FractionText,
    Quantity,
    Resources,
    Rule,
    SecretKeyReference,
    SecretReference,
)


class Storage(ApiModel):
    """The volume of the run's ledger. Block storage: SQLite's WAL corrupts on network file systems."""

    size: Quantity = Field("10Gi", description="Size of the claim.")
    class_name: DnsName | None = Field(
        None, description="StorageClass of block storage; unset: the cluster's default. Checked at start."
    )


class Aggregator(ApiModel):
    """The aggregator's StatefulSet."""

    storage: Storage = Field(Storage(), description="The volume of the run's ledger.")
    resources: Resources | None = Field(None, description="Of the aggregator's container; unset: the chart's.")


class Output(ApiModel):
    """Where the results go."""

    url: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=1024,
            description="A folder as fsspec URL: s3://..., gs://..., pvc://CLAIM/DIR; on one machine also a path.",
        ),
        PVC_RULE,
        NO_CREDENTIALS_RULE,
        Rule(
            "self.contains('://') && !self.startsWith('file://')",
            "a path of your machine means nothing in a pod: write s3://..., gs://... or pvc://CLAIM/DIR",
            place="cluster",
        ),
    ] = None
    retain: bool = Field(default=False, description="Keep the aggregator's volume when the EvalRun is deleted.")
    credentials_secret_ref: SecretReference | None = Field(
        None,
        description="Environment of whoever reads or writes buckets for the run (output, datasets, a model at s3:// or "
        "gs://), e.g. AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    )


class Wandb(ApiModel):
    """Weights & Biases."""

    project: str = Field(min_length=1, max_length=128, description="The project that gets the run.")
    entity: str | None = Field(None, min_length=1, max_length=128, description="User or team; unset: the key's own.")
    mode: Literal["online", "offline", "disabled"] = Field(
        "online", description="offline: files beside the outputs, for `wandb sync`; disabled: nothing is exported."
    )
    secret_ref: SecretKeyReference | None = Field(None, description="The API key; needed online.")

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
            description="The tracking server's URL; on one machine also file:///FOLDER.",
        ),
        Rule("self.matches('^(https?://[^/]|file:///)')", "write the server's URL, e.g. http://mlflow.tools:5000"),
        Rule(
            "!self.startsWith('file:')",
            "a folder is kept on one machine only: write the server's URL, e.g. http://mlflow.tools:5000",
            place="cluster",
        ),
        NO_CREDENTIALS_RULE,
    ]
    secret_ref: SecretReference | None = Field(
        None, description="Environment for the client, e.g. MLFLOW_TRACKING_TOKEN."
    )


class Exports(ApiModel):
    """Where figures go besides the output."""

    wandb: Wandb | None = Field(None, description="Weights & Biases; unset: not used.")
    mlflow: Mlflow | None = Field(None, description="MLflow; unset: not used.")
    prometheus: bool = Field(default=True, description="Let Prometheus scrape the run's services.")


class Gate(ApiModel):
    """A comparison with an earlier run: the lower bound of the difference decides."""

    baseline: Annotated[
        str,
        Field(min_length=1, max_length=1024, description="Name of an EvalRun here, or the URL of its outputs."),
        PVC_RULE,
        NO_CREDENTIALS_RULE,
        Rule(
            "self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') || (self.contains('://') && !self.startsWith('file://'))",
            "write the name of an EvalRun of this namespace, or the URL of its outputs (s3://..., pvc://CLAIM/DIR)",
            place="cluster",
        ),
    ]
    metric: Annotated[
        str,
        Field(
            max_length=64,
            description="accepted_at_1, pass_ratio_mean, exec_success_rate, solved_within_budget or pass_at_<k> "
            "(k at most protocol.samples; it is measured whether protocol.k lists it or not).",
        ),
        Rule(
            "self.matches('^(accepted_at_1|pass_ratio_mean|exec_success_rate|solved_within_budget|"
            "pass_at_[1-9][0-9]{0,3})$')",
            "write a metric whose rise is good: accepted_at_1, pass_ratio_mean, exec_success_rate, "
            "solved_within_budget or pass_at_<k>",
        ),
    ] = "accepted_at_1"
    dataset: DatasetName = Field(description="The dataset of this run that is compared.")
    max_regression: FractionText = Field(
        "0.0", description='How far the metric may fall, in quotes: "0.02" is two points of a hundred.'
    )
    confidence: Annotated[
        DecimalText,
        Field(description='Confidence of the interval, in quotes, "0.5" to "0.999".'),
        Rule("double(self) >= 0.5 && double(self) <= 0.999", 'write a confidence from "0.5" to "0.999", e.g. "0.95"'),
    ] = "0.95"

    @property
    def max_regression_value(self) -> float:
        """`maxRegression` as a number."""
        return float(self.max_regression)

    @property
    def confidence_value(self) -> float:
        """`confidence` as a number."""
        return float(self.confidence)


class Cost(ApiModel):
    """What a GPU costs."""

    gpu_hour: DecimalText = Field(description='Price of one GPU for an hour, in quotes: "2.50".')
    currency: str = Field("USD", max_length=3, pattern=r"^[A-Z]{3}$", description="ISO 4217 code.")

    @property
    def gpu_hour_value(self) -> Decimal:
        """`gpuHour` as a number."""
        return Decimal(self.gpu_hour)
