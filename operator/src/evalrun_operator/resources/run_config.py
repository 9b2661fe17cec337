"""The run configuration, which the aggregator and the generator on Ray read, and the Secret with its tokens."""

import json

from evalrun_api import names
from evalrun_api.run_config import RunConfig
from evalrun_api.v1alpha1 import EvalRunSpec
from evalrun_cluster.objects import Object
from evalrun_operator.resources.images import images
from evalrun_operator.resources.plan import RunPlan, dataset_files, timestamp
from evalrun_operator.resources.run_tokens import RunTokens


def order_config_map(plan: RunPlan) -> Object:
    """Return the ConfigMap with the run configuration: the resolved spec, with volumes as paths inside our pods."""
    return plan.make_object(
        "ConfigMap",
        names.order_config_map(plan.run.name),
        names.AGGREGATOR,
        data={names.ORDER_FILE: json.dumps(run_config(plan).to_wire(), indent=1, sort_keys=True)},
    )


def run_config(plan: RunPlan) -> RunConfig:
    """Return the run configuration of a run."""
    spec = plan.spec.to_wire()
    for dataset in spec["datasets"]:
        for holder, field, url in dataset_files(dataset):
            holder[field] = names.local_path(url)
    for field in ("path", "adapter"):
        if field in spec["model"]:
            spec["model"][field] = names.local_path(spec["model"][field])
    for gate, each in zip(plan.spec.gates, spec.get("gates", ()), strict=True):
        if (baseline := plan.find_baseline(gate)) is not None:
            each["baseline"] = names.local_path(baseline)
    for field in ("suspend", "backoffLimit", "ttlSecondsAfterFinished"):
        # These fields may change during the run, and mean nothing to it.
        spec.pop(field, None)
    return RunConfig(
        run=plan.run.name,
        namespace=plan.run.namespace,
        uid=plan.run.uid,
        created=plan.run.created,
        spec=EvalRunSpec.model_validate(spec),
        images=images(plan),
        output_dir=output_directory(plan),
    )


def output_directory(plan: RunPlan) -> str:
    """Return the directory of the outputs: under `output.url`, else on the ledger's volume."""
    url = plan.spec.output.url
    place = f"{names.LEDGER_DIRECTORY}/outputs" if url is None else names.local_path(url)
    return f"{place.rstrip('/')}/{plan.run.name}_{timestamp(plan.run.created)}"


def token_secret(plan: RunPlan, tokens: RunTokens) -> Object:
    """Return the Secret with the tokens that ledger, judge and sandboxes require."""
    return plan.make_object(
        "Secret",
        names.token_secret(plan.run.name),
        names.AGGREGATOR,
        type="Opaque",
        stringData=dict(tokens.by_key),
    )


def judge_tls_secret(plan: RunPlan) -> Object:
    """Return the Secret with the run's certificate for the chart's judge."""
    name = names.judge_tls_secret(plan.run.name, plan.judge_authority)
    return plan.make_object(
        "Secret", name, names.AGGREGATOR, type="Opaque", stringData=dict(plan.new_judge_certificate)
    )
