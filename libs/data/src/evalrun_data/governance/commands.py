"""The commands of `evalrun data`, which report results on stdout and errors on stderr."""

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evalrun_data.governance.allow_file import read_allow_file
from evalrun_data.governance.audit import audit_directory
from evalrun_data.governance.audit_result import AuditResult
from evalrun_data.governance.fusion_source import fetch_fusion_rows
from evalrun_data.governance.meaning.meaning_stage import MeaningStage, MeaningThresholds
from evalrun_data.governance.meaning.onnx_embedder import OnnxEmbedder
from evalrun_data.governance.meaning.pair_judge import PairJudge
from evalrun_data.governance.plan import read_plan
from evalrun_data.governance.prepare import Preparation, PrepareProgress
from evalrun_data.governance.prepared import AUDIT, MANIFESTS, REPORT
from evalrun_data.governance.prepared_check import check_prepared
from evalrun_registry.fusion_routes import server_url
from evalrun_runtime.exits import BadInputError, ExitCode

SHOWN_OVERLAPS = 10
EXIT_CODES: Final[Mapping[str, ExitCode]] = {
    "passed": ExitCode.SUCCEEDED,
    "failed": ExitCode.FAILED,
    "incomplete": ExitCode.DEGRADED,
}
"""Exit codes by the audit's state."""
MIN_COSINE: Final = 0.8
"""Cosine from which two statements count as the same problem."""
JUDGE_MIN_COSINE: Final = 0.6
"""Cosine from which a judge is asked."""
MAX_JUDGED_PAIRS: Final = 500
"""Questions of an audit."""
PROGRESS_SECONDS = 2.0


class ProgressLines:
    """Prints how far a preparation is, every two seconds at most."""

    def __init__(self) -> None:
        self._next = time.monotonic() + PROGRESS_SECONDS

    def __call__(self, progress: PrepareProgress) -> None:
        """Print the progress if it is time."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PROGRESS_SECONDS
        done = f"{progress.done / 1e6:,.0f} MB" if progress.step == "copying" else f"{progress.done:,} problems"
        _err(f"{progress.dataset}: {progress.step}, {done}")


def prepare_data(plan_file: Path, *, output: Path, sandbox_fusion: str | None) -> ExitCode:
    """Prepare the datasets of a plan. Raises BadInputError if the plan, a source or the directory cannot be used."""
    plan = read_plan(plan_file)
    endpoint = server_url(sandbox_fusion or os.environ.get("SANDBOX_FUSION_ENDPOINT", ""))

    def fetch_rows(source: str, target: Path) -> None:
        fetch_fusion_rows(source, target, endpoint)

    try:
        result = Preparation(plan, output, ProgressLines(), fetch_rows).run()
    except OSError as error:
        raise BadInputError(f"{error.filename or output}: cannot be written: {error.strerror or error}") from error
    return _told(result, output)


@dataclass(frozen=True, slots=True)
class MeaningOptions:
    """The stage for meaning, as the user asks for it."""

    embedder: Path
    min_cosine: float = MIN_COSINE
    judge: PairJudge | None = None
    judge_min_cosine: float = JUDGE_MIN_COSINE
    max_judged_pairs: int = MAX_JUDGED_PAIRS


def audit_data(directory: Path, *, allow: Path | None, meaning: MeaningOptions | None = None) -> ExitCode:
    """Audit a prepared directory. Raises BadInputError if it, the allow file or the embedding model cannot be used."""
    allowed = read_allow_file(allow) if allow else ()
    return _told(audit_directory(directory, allowed, _stage(meaning) if meaning else None), directory)


def _stage(meaning: MeaningOptions) -> MeaningStage:
    """Load the model, so that one that cannot be used ends the command before the texts are compared."""
    if meaning.judge is not None and meaning.judge_min_cosine > meaning.min_cosine:
        raise BadInputError(
            f"--judge-min-cosine is {meaning.judge_min_cosine:g}, above --min-cosine {meaning.min_cosine:g}: pairs "
            "between them would be neither found nor judged: write at most as much"
        )
    thresholds = MeaningThresholds(meaning.min_cosine, meaning.judge_min_cosine, meaning.max_judged_pairs)
    return MeaningStage(OnnxEmbedder(meaning.embedder), thresholds, meaning.judge, _err, time.monotonic)


def show_data(directory: Path) -> ExitCode:
    """Show a prepared directory. Raises BadInputError if its files are not those that were audited."""
    audit = check_prepared(directory)
    _out(f"{directory}: audit {audit.state}")
    for name, dataset in audit.datasets.items():
        _out(
            f"  {name}: {dataset.records} records, {dataset.removed} duplicates removed, role {dataset.role}, "
            f"audit {dataset.state}, manifest {dataset.manifest_sha256}"
        )
    return EXIT_CODES.get(audit.state, ExitCode.FAILED)


def _told(result: AuditResult, directory: Path) -> ExitCode:
    for audited in result.datasets:
        dataset = audited.dataset
        _out(
            f"{dataset.name}: {dataset.kept} records, {dataset.removed} duplicates removed, role {dataset.role}, "
            f"audit {audited.state}"
        )
    not_allowed = [overlap for overlap in result.overlaps if overlap.allowed is None]
    for overlap in not_allowed[:SHOWN_OVERLAPS]:
        figure = f"{overlap.jaccard:.2f}" if overlap.cosine is None else f"{overlap.cosine:.2f}, {overlap.found_by}"
        _err(f"overlap ({overlap.kind}, {figure}): {overlap.first} and {overlap.second}")
    if not_allowed:
        _err(
            f"evalrun: the audit failed: {len(not_allowed)} overlaps: see {directory / MANIFESTS / REPORT} (all of "
            f"them: "
            f"{AUDIT} beside it); take the data apart, or list what is fine in an allow file"
        )
    undecided = [pair for pair in result.meaning.undecided if pair.allowed is None] if result.meaning else []
    if undecided:
        outage = result.meaning.result.judge.outage if result.meaning and result.meaning.result.judge else ""
        _err(
            f"evalrun: the audit is incomplete: {len(undecided)} pairs that may be the same problem are undecided"
            f"{f', since the pair judge failed ({outage})' if outage else ''}: see {directory / MANIFESTS / REPORT}; "
            "audit again, with more --max-judged-pairs if some were not asked about, or list what is fine in an allow "
            "file"
        )
    return EXIT_CODES[result.state]


def _out(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _err(line: str) -> None:
    sys.stderr.write(f"{line}\n")
