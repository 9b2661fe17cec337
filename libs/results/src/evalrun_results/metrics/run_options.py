"""Derives the metric options from a run's spec, for computing metrics and for checking them later. Pure."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from pydantic import ValidationError

from evalrun_api.run_config import EvalRunSpec
from evalrun_results.metrics.accumulator import MetricOptions
from evalrun_runtime.exits import BadInputError


def options_of_spec(
    spec: EvalRunSpec, *, gpu_seconds: float, is_made_elsewhere: bool, is_rejudged: bool, ks: Sequence[int] = ()
) -> MetricOptions:
    """Return the options of a run's metrics.

    Args:
        spec: the run's.
        gpu_seconds: of every replica together.
        is_made_elsewhere: whether the answers came in files.
        is_rejudged: whether the answers of an earlier run were judged again.
        ks: the k of pass@k for answers made elsewhere; empty for the default ks.
    """
    turns = None if is_made_elsewhere else spec.protocol.turns
    return MetricOptions(
        ks=() if spec.protocol.budget or turns else tuple(ks or spec.protocol.k) or None,
        budget=spec.protocol.budget is not None,
        turns=1 if turns is None else turns.limit,
        gpu_seconds=gpu_seconds,
        gpu_hour_price=None if spec.cost is None else _number(spec.cost.gpu_hour_value),
        cpu_hour_price=None if spec.cost is None else _number(spec.cost.cpu_hour_value),
        throughput=not is_rejudged,
        sampled=spec.sampled_datasets,
    )


def _number(price: Decimal | None) -> float | None:
    return None if price is None else float(price)


def parse_spec(run_info: Mapping[str, object]) -> EvalRunSpec:
    """Return the spec of a run that has ended.

    Args:
        run_info: content of its run_info.json.

    Raises:
        BadInputError: it has no spec that this evalrun knows.
    """
    try:
        return EvalRunSpec.model_validate(run_info.get("spec"))
    except ValidationError as error:
        raise BadInputError(f"run_info.json: spec: {error.errors()[0]['msg']}") from error


def metric_options(run_info: Mapping[str, object]) -> MetricOptions:
    """Return the options of the metrics of a run that has ended. Raises BadInputError as `parse_spec` does."""
    seconds, ks = run_info.get("gpu_seconds"), run_info.get("k")
    return options_of_spec(
        parse_spec(run_info),
        gpu_seconds=float(seconds) if isinstance(seconds, int | float) else 0.0,
        is_made_elsewhere=run_info.get("responses") is not None,
        is_rejudged=run_info.get("rejudge") is not None,
        ks=[int(k) for k in ks] if isinstance(ks, list) else (),
    )
