"""The run's work order, which the aggregator (and the generator on Ray) reads, and the Secret with its token."""

import json

from evalrun_operator import names
from evalrun_operator.resources.images import images
from evalrun_operator.resources.plan import Object, RunPlan, timestamp


def order_config_map(plan: RunPlan) -> Object:
    """Give the ConfigMap with the work order: the spec as resolved, in which volumes are paths inside our pods."""
    return plan.made(
        "ConfigMap",
        names.order_config_map(plan.run.name),
        names.AGGREGATOR,
        data={names.ORDER_FILE: json.dumps(work_order(plan), indent=1, sort_keys=True)},
    )


def work_order(plan: RunPlan) -> Object:
    """Give the work order as `evalrun_aggregator.work_order` reads it."""
    spec = plan.spec.to_wire()
    for dataset in spec["datasets"]:
        dataset["source"] = names.local_path(dataset["source"])
    spec["model"]["path"] = names.local_path(spec["model"]["path"])
    if plan.baseline is not None:
        spec["gate"]["baseline"] = names.local_path(plan.baseline)
    for field in ("suspend", "backoffLimit", "ttlSecondsAfterFinished"):
        spec.pop(field, None)  # may change while the run goes on, and mean nothing to it
    return {
        "schema": 1,
        "run": plan.run.name,
        "namespace": plan.run.namespace,
        "uid": plan.run.uid,
        "created": plan.run.created.isoformat(),
        "spec": spec,
        "images": images(plan),
        "output_dir": output_folder(plan),
    }


def output_folder(plan: RunPlan) -> str:
    """Give the folder of the outputs: under `output.url`, else on the ledger's volume."""
    url = plan.spec.output.url
    place = f"{names.LEDGER_FOLDER}/outputs" if url is None else names.local_path(url)
    return f"{place.rstrip('/')}/{plan.run.name}_{timestamp(plan.run.created)}"


def token_secret(plan: RunPlan) -> Object:
    """Give the Secret with the token that ledger, judge and sandboxes ask for."""
    return plan.made(
        "Secret",
        names.token_secret(plan.run.name),
        names.AGGREGATOR,
        type="Opaque",
        stringData={names.TOKEN_KEY: plan.token},
    )
