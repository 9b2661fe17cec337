"""Arguments of a grader, from rows in verl's layout and from our record: `ground_truth` and `extra_info`."""

import json

from evalrun_data.records import Reference
from evalrun_data.rows import Row


def parse_reference(row: Row) -> Reference:
    """Return a row's ground truth unchanged, as text or object, without reading it as tests."""
    holder = row.inside("reward_model") if row.has("reward_model") else row
    if not holder.has("ground_truth"):
        raise row.error(f"field '{holder.path}ground_truth' is missing: a grader has nothing to compare with")
    extra_info = row.inside("extra_info").values if row.has("extra_info") else {}
    return Reference(
        _json(row, f"{holder.path}ground_truth", holder.values["ground_truth"]), _json(row, "extra_info", extra_info)
    )


def _json(row: Row, field: str, value: object) -> str:
    try:
        return json.dumps(value)
    # A Parquet column has bytes or dates.
    except (TypeError, ValueError) as error:
        raise row.error(f"field '{field}' cannot be handed to a grader as JSON: {error}") from error
