"""The spec of an EvalRun, and the rules that span its groups."""

from typing import Annotated

from pydantic import Field

from evalrun_operator.api.modelling import ApiModel, DnsName, LocalObjectReference, Rule, list_type
from evalrun_operator.api.v1alpha1.judging import Judge, JudgeReference
from evalrun_operator.api.v1alpha1.results import Aggregator, Cost, Exports, Gate, Output
from evalrun_operator.api.v1alpha1.serving import Endpoint, Rollout
from evalrun_operator.api.v1alpha1.task import Dataset, Model, Protocol

MUTABLE_FIELDS = frozenset({"suspend", "ttlSecondsAfterFinished", "backoffLimit"})
"""What may still change once the run has started, by wire name."""


class EvalRunSpec(ApiModel):
    """What is to be evaluated, how, and where the results go."""

    model: Model = Field(description="The model under evaluation.")
    datasets: Annotated[
        list[Dataset],
        Field(
            max_length=16,
            description="What it is evaluated on.",
            json_schema_extra=list_type("map", "name"),
        ),
        Rule("size(self) > 0", "nothing to evaluate: list at least one dataset with name and source"),
        Rule(
            "self.all(d, self.exists_one(e, e.name == d.name))",
            "two datasets have the same name: results are kept by name, give each its own",
        ),
    ]
    protocol: Protocol = Field(Protocol(), description="How answers are drawn; unset: EVAL@1.")
    rollout: Rollout | None = Field(None, description="Replicas that the run starts on GPUs. Either this or endpoints.")
    endpoints: Annotated[
        list[Endpoint] | None,
        Field(
            min_length=1,
            max_length=64,
            description="Servers that answer already (simple mode). Either this or rollout.",
            json_schema_extra=list_type("atomic"),
        ),
        Rule(
            "self.all(e, self.exists_one(f, f.url == e.url))",
            "two endpoints have the same url: list each server once",
        ),
    ] = None
    judge: Judge | None = Field(None, description="A judge of the run's own; unset without judgeRef: the defaults.")
    judge_ref: JudgeReference | None = Field(None, description="A shared judge instead.")
    aggregator: Aggregator = Field(Aggregator(), description="The keeper of the run's ledger.")
    output: Output = Field(Output(), description="Where the results go. In a cluster: url, retain: true, or both.")
    exports: Exports = Field(Exports(), description="Where figures go besides the output.")
    gate: Gate | None = Field(None, description="A comparison with an earlier run that the run must pass.")
    cost: Cost | None = Field(None, description="Prices, for the cost of a solved problem.")
    suspend: bool = Field(default=False, description="Free the GPUs and wait; what is in the ledger stays.")
    backoff_limit: int = Field(
        3, ge=0, le=100, description="How often a failed generator or cluster is tried again before the run fails."
    )
    active_deadline_seconds: int | None = Field(
        None, ge=1, le=31_536_000, description="Seconds from the start after which the run fails; unset: none."
    )
    ttl_seconds_after_finished: int = Field(
        86_400,
        ge=0,
        le=31_536_000,
        description="Seconds after the end for which the aggregator stays and answers questions.",
    )
    service_account_name: DnsName | None = Field(
        None, description="ServiceAccount of aggregator and generator, e.g. for access to a bucket."
    )
    image_pull_secrets: list[LocalObjectReference] = Field(
        [],
        max_length=8,
        description="Secrets with which the images are pulled.",
        json_schema_extra=list_type("map", "name"),
    )

    RULES = (
        Rule(
            "has(self.rollout) != has(self.endpoints)",
            "write either rollout (replicas on GPUs) or endpoints (servers that answer already), not both and not none",
        ),
        Rule(
            "!has(self.judge) || !has(self.judgeRef)",
            "write either judge (the run's own) or judgeRef (a shared one), not both",
            ".judgeRef",
        ),
        Rule(
            "has(self.output.url) || self.output.retain",
            "the results would be lost: write output.url (s3://..., gs://..., pvc://CLAIM/DIR), or output.retain: true "
            "to keep the volume",
            ".output",
            place="cluster",
        ),
        Rule(
            "!has(self.rollout) || self.rollout.enableChunkedPrefill || self.rollout.maxNumBatchedTokens >= "
            "self.rollout.promptLength + self.protocol.maxNewTokens",
            "without chunked prefill a step must hold a whole sequence: write maxNumBatchedTokens of at least "
            "promptLength + maxNewTokens, or enableChunkedPrefill: true",
            ".rollout.maxNumBatchedTokens",
        ),
        Rule(
            "!has(self.gate) || self.datasets.exists(d, d.name == self.gate.dataset)",
            "the gate compares a dataset that this run does not evaluate: write the name of one of datasets",
            ".gate.dataset",
        ),
        Rule(
            "!has(self.gate) || self.datasets.all(d, d.name != self.gate.dataset || d.judgeMode == 'RunCode')",
            "results of judgeMode: Submit can be forged and feed no gate: write judgeMode: RunCode for this dataset",
            ".gate.dataset",
        ),
        # That k is at most samples is for the aggregator to see: `string(k)` has no bound in the API server's estimate,
        # so a rule that joins it to 'pass_at_' exceeds the cost budget a hundredfold (1.36).
        Rule(
            "!has(self.gate) || !self.gate.metric.startsWith('pass_at_') || self.protocol.name == 'EVAL@k'",
            "pass_at_<k> is measured by EVAL@k only: write protocol.name: EVAL@k or another metric",
            ".gate.metric",
        ),
        Rule(
            "!has(self.gate) || self.gate.metric != 'solved_within_budget' || self.protocol.name == 'EVAL@budget'",
            "solved_within_budget is measured by EVAL@budget only: write protocol.name: EVAL@budget or another metric",
            ".gate.metric",
        ),
        Rule(
            "!has(self.rollout) || self.rollout.loadFormat != 'dummy' || !has(self.gate)",
            "figures of dummy weights are worthless: remove gate, or write loadFormat: auto",
            ".gate",
        ),
    )

    @property
    def own_judge(self) -> Judge | None:
        """The judge that the run makes: `judge` or its defaults; None where a shared one is named."""
        if self.judge_ref is not None:
            return None
        return self.judge or Judge()
