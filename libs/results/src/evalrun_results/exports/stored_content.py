"""The content exported for a run that has ended, from its outputs."""

import re
from collections.abc import Mapping
from typing import Any

from evalrun_api.run_config import RunConfig, parse_run_config
from evalrun_results.exports.content import ID_CHARACTERS, ExportContent, make_content, summary_values
from evalrun_results.stored_run import StoredRun

_ID = re.compile(rf"[0-9a-f]{{{ID_CHARACTERS}}}")
_IDENTITY = ("run", "namespace", "created", "spec", "rejudge")


def read_stored_config(run: StoredRun) -> RunConfig:
    """Return a stored run's configuration without its output directory and its EvalRun's uid. Raises BadInputError."""
    stored = {name: run.run_info.get(name) for name in _IDENTITY}
    return parse_run_config({**stored, "output_dir": "/"}, f"{run.place}/run_info.json")


def read_export_content(run: StoredRun, order: RunConfig) -> ExportContent:
    """Return the content of an export at the run's end, with the id of an earlier export if there was one.

    Args:
        run: a run that has ended.
        order: as `read_stored_config` returns it.

    Raises:
        BadInputError: the outputs cannot be read.
    """
    info = {name: value for name, value in run.run_info.items() if name != "exports"}
    summary: Mapping[str, Any] = run.summary
    content = make_content(order, info, summary_values(summary["datasets"]), run.qa_records())
    earlier = _earlier_id(run.run_info.get("exports"))
    return content if earlier is None else content.model_copy(update={"id": earlier})


def _earlier_id(exports: object) -> str | None:
    entries = exports.values() if isinstance(exports, dict) else ()
    ids = (str(entry.get("id")) for entry in entries if isinstance(entry, dict))
    # The directory may belong to another person, and a service looks the run up by this text.
    return next((each for each in ids if _ID.fullmatch(each)), None)
