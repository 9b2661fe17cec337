"""A run as a record of Every Eval Ever, schema 0.3.0 (https://github.com/evaleval/every_eval_ever). Pure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from evalrun_results.publications.figures import Figure, Publication

SCHEMA = "0.3.0"
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Who ran the evaluation, and their relation to the model's developer."""

    organization: str
    relationship: str
    """first_party, third_party, collaborative or other."""


def eee_file(publication: Publication, model_id: str, evaluator: Evaluator) -> tuple[str, str]:
    """Return path and content of the record. The same run and model id give the same path.

    Args:
        publication: the run.
        model_id: `DEVELOPER/MODEL`.
        evaluator: who ran it.
    """
    when = int(publication.ended.timestamp())
    identity = f"evalrun/{publication.run}/{model_id}/{when}"
    # The store requires names in the form of random UUIDs.
    digest = hashlib.sha256(identity.encode()).digest()
    benchmarks = "_".join(dict.fromkeys(figure.dataset for figure in publication.figures))
    developer, _, name = model_id.rpartition("/")
    path = f"data/{benchmarks}/{developer or 'unknown'}/{name}/{UUID(bytes=digest[:16], version=4)}.json"
    record = {
        "schema_version": SCHEMA,
        "evaluation_id": identity,
        "evaluation_timestamp": publication.ended.isoformat(),
        "retrieved_timestamp": str(when),
        "source_metadata": {
            "source_name": "evalrun",
            "source_type": "evaluation_run",
            "source_organization_name": evaluator.organization,
            "evaluator_relationship": evaluator.relationship,
        },
        "eval_library": {
            "name": "evalrun",
            "version": publication.evalrun,
            "additional_details": {"containment": publication.containment},
        },
        "model_info": _model(publication, model_id),
        "evaluation_results": [_result(publication, figure) for figure in publication.figures],
    }
    return path, json.dumps(record, indent=2, ensure_ascii=False) + "\n"


def _model(publication: Publication, model_id: str) -> dict[str, Any]:
    deployed = "self_deployed" if publication.engine else "unknown"
    found: dict[str, Any] = {
        "name": model_id.rpartition("/")[2],
        "id": model_id,
        "additional_details": {"deployment_type": deployed, "model_availability": "unknown"},
    }
    return found | ({"inference_engine": dict(publication.engine)} if publication.engine else {})


def _result(publication: Publication, figure: Figure) -> dict[str, Any]:
    score: dict[str, Any] = {"score": figure.value}
    if figure.interval is not None:
        low, high = figure.interval
        interval = {"lower": low, "upper": high, "confidence_level": CONFIDENCE, "method": figure.method}
        score["uncertainty"] = {"confidence_interval": interval, "num_samples": figure.problems}
    return {
        "evaluation_result_id": f"{figure.dataset}/pass_at_{figure.k}",
        "evaluation_name": figure.dataset,
        "source_data": {
            "dataset_name": figure.dataset,
            "source_type": "other",
            "additional_details": {"records_sha256": publication.records_sha256[figure.dataset]},
        },
        "metric_config": {
            "metric_id": "pass_at_k",
            "metric_name": f"pass@{figure.k}",
            "metric_kind": "pass_rate",
            "metric_unit": "proportion",
            "metric_parameters": {"k": figure.k},
            "lower_is_better": False,
            "score_type": "continuous",
            "min_score": 0.0,
            "max_score": 1.0,
        },
        "score_details": score,
        "generation_config": _generation(publication.protocol),
    }


def _generation(protocol: Mapping[str, Any]) -> dict[str, Any]:
    if not protocol:
        return {"additional_details": {"answers": "made elsewhere"}}
    return {
        "generation_args": {
            "temperature": float(protocol["temperature"]),
            "top_p": float(protocol["topP"]),
            "max_tokens": protocol["maxNewTokens"],
        },
        "additional_details": {
            "samples": str(protocol["samples"]), "seed": str(protocol["seed"]), "protocol": str(protocol["name"]),
        },
    }  # fmt: skip
