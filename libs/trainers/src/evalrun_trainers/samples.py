"""Converts a trainer's row to a sample, and a result to a trainer's log entry. Pure."""

import math
from collections.abc import Mapping
from typing import Any

from evalrun_trainers.client import JUDGED, Result, Sample

FROM_EXTRA_INFO = ("language", "truncated")


def make_sample(
    data_source: str,
    response: str,
    ground_truth: Any,  # noqa: ANN401 - whatever the row holds
    extra_info: Mapping[str, Any] | None = None,
) -> Sample:
    """Return the sample of a row in verl's layout. What has the wrong type is passed on: the service refuses it alone.

    Args:
        data_source: the row's.
        response: the model's answer.
        ground_truth: the tests or a reference to them; passed on unchanged.
        extra_info: passed on for graders; `language`, `truncated` and `problem_prompt` serve tests too.
    """
    sample = {"response": response, "data_source": str(data_source or ""), "ground_truth": ground_truth}
    if extra_info is not None and not isinstance(extra_info, Mapping):
        return {**sample, "extra_info": extra_info}
    extra = extra_info or {}
    for name in FROM_EXTRA_INFO:
        if extra.get(name) is not None:
            sample[name] = extra[name]
    if isinstance(extra.get("problem_prompt"), str):
        sample["prompt"] = extra["problem_prompt"]
    if extra:
        sample["extra_info"] = plain(extra)
    return sample


def plain(value: Any) -> Any:  # noqa: ANN401 - whatever a row holds
    """Convert a value to JSON: rows contain numpy arrays and scalars, and a NaN would make the whole batch invalid."""
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    to_list = getattr(value, "tolist", None)
    return str(value) if to_list is None else plain(to_list())


def make_log_entry(result: Result, score: float) -> dict[str, Any]:
    """Return a trainer's log entry, which holds the score too: the same keys for every sample, numbers and texts only.

    verl makes an array of each key over a batch, and a mean of each key that holds numbers.
    """
    return {
        "score": score,
        "acc": float(bool(result.get("accepted"))),
        "judged": float(result.get("outcome") == JUDGED),
        "pass_ratio": _number(result.get("pass_ratio")),
        "pass_ratio_high": _number(result.get("pass_ratio_high")),
        "f2p_count": float(result.get("f2p_count") or 0),
        "f2p_total": float(result.get("f2p_total") or 0),
        "p2p_count": float(result.get("p2p_count") or 0),
        "p2p_total": float(result.get("p2p_total") or 0),
        "assumed_timeouts": float(result.get("assumed_timeouts") or 0),
        "final_status": str(result.get("final_status") or "not_judged"),
        "codes": ",".join(str(code) for code in result.get("codes") or ()),
    }


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
