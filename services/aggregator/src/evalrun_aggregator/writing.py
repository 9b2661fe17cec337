"""Hands a finished run to the writer of the outputs."""

import json
from pathlib import Path

from evalrun_aggregator.finishing import OutputJob, Written
from evalrun_aggregator.results import result_row


def write_run_outputs(job: OutputJob) -> Written:
    """Write the outputs; each file whole or not at all. Blocking. Raises OSError."""
    folder = Path(job.order.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    counts: dict[str, int] = {}
    with (folder / "results.jsonl.tmp").open("w", encoding="utf-8") as rows:
        for result in job.samples():
            counts[result.final_status] = counts.get(result.final_status, 0) + 1
            rows.write(json.dumps(result_row(result)) + "\n")
    (folder / "results.jsonl.tmp").replace(folder / "results.jsonl")
    for name, content in (
        ("run_info.json", job.run_info),
        ("summary.json", {"schema": 1, "state": "Degraded" if job.degraded else "Succeeded", "counts": counts}),
    ):
        temporary = folder / f"{name}.tmp"
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        temporary.replace(folder / name)
    return Written(str(folder), {})
