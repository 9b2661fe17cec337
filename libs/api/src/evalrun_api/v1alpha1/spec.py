"""The spec of an EvalRun, and the rules that span its groups."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from evalrun_api.api_model import ApiModel, DnsName, LocalObjectReference, Rule, list_type
from evalrun_api.v1alpha1.dataset import Dataset
from evalrun_api.v1alpha1.gates import GATE_METRICS, Gate
from evalrun_api.v1alpha1.judge import Judge, JudgeReference
from evalrun_api.v1alpha1.lineage import Lineage
from evalrun_api.v1alpha1.model import Model
from evalrun_api.v1alpha1.model_servers import Endpoint, Generator, Rollout
from evalrun_api.v1alpha1.placement import Placements, PodMetadata
from evalrun_api.v1alpha1.protocol import Protocol
from evalrun_api.v1alpha1.results import Aggregator, Attest, Cost, Exports, Output
from evalrun_api.v1alpha1.tls import TlsSecretReferences
from evalrun_registry.metric import PROTOCOLS, Measured

MUTABLE_FIELDS = frozenset({"suspend", "ttlSecondsAfterFinished", "backoffLimit"})
"""Fields that may still change once the run has started, by wire name."""


def _gate_rule(expression: str, message: str) -> Rule:
    """Return a rule that each gate must follow; `expression` calls the gate `g`."""
    return Rule(f"self.gates.all(g, {expression})", message, ".gates")


def _protocol_rule(protocol: Measured) -> Rule:
    """Return the rule that refuses a gate on a metric of this protocol in a run of another protocol.

    That k is at most samples is for the aggregator to see: `string(k)` has no bound in the API server's estimate, so a
    rule that joins it to 'pass_at_' exceeds the cost budget a hundredfold (1.36).
    """
    metrics = [metric for metric in GATE_METRICS if metric.measured is protocol]
    others = " && ".join(
        f"!g.metric.startsWith('{each.stem}')" if each.number else f"g.metric != '{each.name}'" for each in metrics
    )
    names = " and ".join(metric.name for metric in metrics)
    return _gate_rule(
        f"{others if len(metrics) == 1 else f'({others})'} || self.protocol.name == '{protocol}'",
        f"{names} {'is' if len(metrics) == 1 else 'are'} measured by {protocol} only: write protocol.name: {protocol} "
        "or another metric",
    )


NO_LAST_GOOD_RULE = _gate_rule(
    "!has(g.baseline) || g.baseline != 'LastGood'",
    "LastGood is known to an EvalSchedule only: write the name of an EvalRun, or the URL of its outputs",
)
"""A single run has no last good checkpoint."""


ADAPTER_RULE = Rule(
    "!has(self.model.adapter) || (has(self.rollout) && self.rollout.engine == 'vllm')",
    "a LoRA adapter is served by replicas of vLLM: write rollout with engine: vllm, or have your own server offer the "
    "adapter and name it in endpoints[].model",
    ".model.adapter",
)


MAX_DATASETS: Final = 16
"""Of a run. The API server bounds what rules over the list may cost."""


class EvalRunSpec(ApiModel):
    """The model, the datasets, how they are evaluated, and where the results go."""

    model: Model = Field(description="The model under evaluation.")
    datasets: Annotated[
        list[Dataset],
        Field(
            max_length=MAX_DATASETS,
            description="The datasets that it is evaluated on.",
            json_schema_extra=list_type("map", "name"),
        ),
        Rule("size(self) > 0", "nothing to evaluate: list at least one dataset with name and source"),
        Rule(
            "self.all(d, self.exists_one(e, e.name == d.name))",
            "two datasets have the same name: results are kept by name, give each its own",
        ),
    ]
    protocol: Protocol = Field(Protocol(), description="How answers are drawn; unset: EVAL@1.")
    rollout: Rollout | None = Field(
        None, description="Replicas that the run starts on GPUs. Exactly one of rollout and endpoints is required."
    )
    endpoints: Annotated[
        list[Endpoint] | None,
        Field(
            min_length=1,
            max_length=64,
            description="Servers that are already running (simple mode). Exactly one of rollout and endpoints is "
            "required.",
            json_schema_extra=list_type("atomic"),
        ),
        Rule(
            "self.all(e, self.exists_one(f, f.url == e.url))",
            "two endpoints have the same url: list each server once",
        ),
        Rule(
            "self.all(e, !self.exists(f, f.url == e.url + '/' || f.url == e.url + '/v1' || f.url == e.url + '/v1/'))",
            "two endpoints are one server ('/' and '/v1' at the end make no other): list each server once",
        ),
    ] = None
    generator: Generator | None = Field(None, description="The generator of simple mode; unset: the chart's defaults.")
    pods: PodMetadata = Field(
        PodMetadata(), description="Labels and annotations that are added to every pod of the run."
    )
    placement: Placements = {}  # noqa: RUF012 - pydantic copies it
    judge: Judge | None = Field(
        None, description="A judge for this run alone. Without judge and judgeRef: one with the defaults."
    )
    judge_ref: JudgeReference | None = Field(None, description="A shared judge, instead of one for this run alone.")
    aggregator: Aggregator = Field(Aggregator(), description="The service that stores the run's ledger.")
    output: Output = Field(Output(), description="Where the results go. In a cluster: url, retain: true, or both.")
    attest: Attest | None = Field(
        None, description="A signature of the results, for evalrun verify. On one machine: evalrun attest, afterwards."
    )
    exports: Exports = Field(Exports(), description="Other systems that receive the figures.")
    lineage: Lineage | None = Field(None, description="The training and the checkpoint that the model comes from.")
    gates: list[Gate] = Field(
        [],
        max_length=8,
        description="Comparisons with earlier runs; the run must pass all of them. With several gates, Bonferroni's "
        "correction keeps the probability of any wrong decision as low as with one gate of the same confidence.",
        json_schema_extra=list_type("atomic"),
    )
    cost: Cost | None = Field(None, description="Prices, to calculate the cost of a solved problem.")
    tls: Literal["Disabled", "Issued"] | None = Field(
        None,
        description="Mutual TLS between the run's parts. Unset or Issued: by certificates that the operator makes for "
        "the run. Disabled: plain text. For a shared judge: judgeRef.tlsSecretRef.",
    )
    tls_secret_refs: TlsSecretReferences | None = Field(
        None, description="Certificates of the run's parts, instead of those that the operator makes."
    )
    suspend: bool = Field(default=False, description="Release the GPUs and wait; the ledger is kept.")
    backoff_limit: int = Field(
        3, ge=0, le=100, description="How many times a failed generator or cluster is retried before the run fails."
    )
    active_deadline_seconds: int | None = Field(
        None, ge=1, le=31_536_000, description="Seconds from the start after which the run fails; unset: no limit."
    )
    ttl_seconds_after_finished: int | None = Field(
        None,
        ge=0,
        le=31_536_000,
        description="Seconds after its end at which the EvalRun and its objects are deleted, as for a Job; the outputs "
        "at output.url are kept. Unset: it is not deleted.",
    )
    operator_class: DnsName | None = Field(
        None,
        description="The class of the operator that runs it, if a cluster has several operators. Unset: the operator "
        "without a class.",
    )
    service_account_name: DnsName | None = Field(
        None, description="ServiceAccount of aggregator and generator, e.g. for access to a bucket."
    )
    image_pull_secrets: list[LocalObjectReference] = Field(
        [],
        max_length=8,
        description="Secrets for pulling the images.",
        json_schema_extra=list_type("map", "name"),
    )

    MAX_BYTES: ClassVar[int | None] = 48 * 1024
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.rollout) != has(self.endpoints)",
            "write exactly one of rollout (replicas on GPUs) and endpoints (servers that are already running)",
        ),
        Rule(
            "!has(self.generator) || has(self.endpoints)",
            "generator is simple mode's: with rollout the head runs it, so write rollout.headResources",
            ".generator",
        ),
        Rule(
            "!has(self.rollout) || !('rayWorkers' in self.placement) || "
            "((size(self.rollout.nodeSelector) == 0 || size(self.placement['rayWorkers'].nodeSelector) == 0) && "
            "(size(self.rollout.tolerations) == 0 || size(self.placement['rayWorkers'].tolerations) == 0))",
            "rollout and placement.rayWorkers both say where the workers go: write each field in one of them",
            ".placement",
        ),
        Rule(
            "!has(self.judge) || !has(self.judgeRef)",
            "write either judge (the run's own) or judgeRef (a shared one), not both",
            ".judgeRef",
        ),
        Rule(
            "!has(self.tls) || !has(self.tlsSecretRefs)",
            "write either tls or tlsSecretRefs (certificates of your own), not both",
            ".tlsSecretRefs",
        ),
        Rule(
            "!has(self.tlsSecretRefs) || has(self.judgeRef) == (!has(self.tlsSecretRefs.gateway) && "
            "!has(self.tlsSecretRefs.sandbox)) && has(self.tlsSecretRefs.gateway) == has(self.tlsSecretRefs.sandbox)",
            "name gateway and sandbox where the run has a judge of its own, and neither with judgeRef, whose "
            "certificate is judgeRef.tlsSecretRef's",
            ".tlsSecretRefs",
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
            "self.gates.all(g, self.gates.all(h, !has(g.baseline) || !has(h.baseline) || g.baseline.contains('://') || "
            "h.baseline.contains('://') || g.baseline == h.baseline))",
            "the gates name several EvalRuns as baselines: name one, and the others by the URL of their outputs",
            ".gates",
        ),
        ADAPTER_RULE,
        NO_LAST_GOOD_RULE,
        _gate_rule(
            "(!has(g.dataset) || self.datasets.exists(d, d.name == g.dataset)) && "
            "g.datasets.all(p, self.datasets.exists(d, d.name == p.name))",
            "the gate compares a dataset that this run does not evaluate: write the name of one of datasets",
        ),
        _gate_rule(
            "self.datasets.all(d, (d.judgeMode == 'RunCode' && d.purpose == 'Evaluation') || "
            "((!has(g.dataset) || d.name != g.dataset) && g.datasets.all(p, p.name != d.name)))",
            "results of judgeMode: Submit can be forged and feed no gate, and purpose: Sampling has no figures: write "
            "judgeMode: RunCode and purpose: Evaluation for this dataset",
        ),
        _gate_rule(
            "self.datasets.all(d, !has(d.role) || d.role != 'test' || d.name in g.allowTestRole || "
            "((!has(g.dataset) || d.name != g.dataset) && g.datasets.all(p, p.name != d.name)))",
            "test data is for the end of a phase, not for tuning: gate a dev dataset, or list it in allowTestRole",
        ),
        *map(_protocol_rule, PROTOCOLS),
        _gate_rule(
            "!g.sequential || self.protocol.name != 'EVAL@turns'",
            "a sequential gate stops a run by first answers, EVAL@turns is about later ones: write sequential: false",
        ),
        Rule(
            "self.protocol.name != 'EVAL@turns' || self.datasets.all(d, d.promptFormat == 'Chat')",
            "feedback is a message of a chat: write promptFormat: Chat, or another protocol than EVAL@turns",
            ".datasets",
        ),
        Rule(
            "self.protocol.name == 'EVAL@turns' || self.datasets.all(d, d.feedback == 'PublicTests')",
            "feedback belongs to EVAL@turns: remove it from the datasets, or write protocol.name: EVAL@turns",
            ".datasets",
        ),
        Rule(
            "!has(self.rollout) || !has(self.protocol.turns) || !has(self.protocol.turns.maxPromptTokens) || "
            "self.protocol.turns.maxPromptTokens <= self.rollout.promptLength",
            "the replicas take prompts up to rollout.promptLength: lower maxPromptTokens, or raise promptLength",
            ".protocol.turns.maxPromptTokens",
        ),
        Rule(
            "!has(self.rollout) || self.rollout.loadFormat != 'dummy' || size(self.gates) == 0",
            "figures of dummy weights are worthless: remove gates, or write loadFormat: auto",
            ".gates",
        ),
    )

    @property
    def sampled_datasets(self) -> frozenset[str]:
        """Names of the datasets that answers are drawn from for training."""
        return frozenset(dataset.name for dataset in self.datasets if dataset.purpose == "Sampling")

    @property
    def baseline_run(self) -> str | None:
        """The EvalRun that the gates name as their baseline; None if they name none."""
        return next((gate.baseline for gate in self.gates if gate.names_a_run), None)

    @property
    def queue_name(self) -> str | None:
        """Kueue's LocalQueue that the RayCluster, or the generator's Job, waits in; None without one."""
        if self.rollout is not None:
            return self.rollout.queue_name
        return None if self.generator is None else self.generator.queue_name

    @property
    def own_judge(self) -> Judge | None:
        """The judge that is created for the run: `judge` or its defaults; None if a shared one is named."""
        if self.judge_ref is not None:
            return None
        return self.judge or Judge()
