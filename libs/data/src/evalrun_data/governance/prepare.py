"""Prepares datasets: raw copies, normalised records, manifests, duplicates, audit.

Everything is made in `OUTPUT/.preparing` and gets its place at the end, by renaming. A killed preparation goes on where
it stopped; one that was refused leaves nothing.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from evalrun_data.governance.audit import audit_directory
from evalrun_data.governance.audit_result import AuditResult
from evalrun_data.governance.compared_texts import find_solution, problem_text
from evalrun_data.governance.hub_commit import HUB_SCHEME, hub_commit
from evalrun_data.governance.manifest import manifest_line
from evalrun_data.governance.parts import DataPart, PartDirectory
from evalrun_data.governance.plan import SANDBOX_FUSION_SCHEME, DatasetPlan, Plan
from evalrun_data.governance.prepared import DATASETS, MANIFESTS, PREPARED, PreparedDataset, PreparedSource
from evalrun_data.governance.raw_copies import CopiedFile, copy_source
from evalrun_data.governance.record_tables import make_columns
from evalrun_data.readers import iter_source_rows
from evalrun_data.records import AssertTests, CheckTest, Problem, StdioTests
from evalrun_data.rows import Row
from evalrun_data.shards import list_files
from evalrun_data.sources import Source
from evalrun_runtime.atomic_files import sync_directory, write_text
from evalrun_runtime.exits import BadInputError

STAGING: Final = ".preparing"


@dataclass(frozen=True, slots=True)
class PrepareProgress:
    """Progress of a preparation."""

    dataset: str
    step: str
    done: int
    """Bytes copied, or problems read."""


Report = Callable[[PrepareProgress], None]
FetchRows = Callable[[str, Path], None]
"""Writes the rows of a `sandboxfusion:` source to a file."""


class Preparation:
    """A preparation into a directory."""

    def __init__(
        self,
        plan: Plan,
        output: Path,
        report: Report,
        fetch_rows: FetchRows,
        commit_of: Callable[[str], str] = hub_commit,
    ) -> None:
        """Prepare nothing yet.

        Args:
            plan: what to prepare.
            output: destination directory; created if absent.
            report: called as the work goes on, often.
            fetch_rows: brings the rows of a SandboxFusion server.
            commit_of: tells the commit of an `hf://` source.
        """
        self._plan = plan
        self._output = output
        self._staging = output / STAGING
        self._report = report
        self._fetch_rows = fetch_rows
        self._hub_commit = commit_of

    def run(self) -> AuditResult:
        """Prepare every dataset, audit them, and put everything in its place.

        Raises:
            BadInputError: a source or the directory cannot be used; nothing is left of this preparation then.
        """
        if self._is_prepared():
            return audit_directory(self._output, self._plan.allowed)
        made = not self._output.exists()
        self._open_staging()
        if not self._publishing.exists():
            try:
                datasets = [self._dataset(dataset) for dataset in self._plan.datasets]
                self._assemble(datasets)
            except BadInputError:
                shutil.rmtree(self._staging)
                if made:
                    self._output.rmdir()
                raise
            write_text(self._publishing, "")
        self._publish()
        return audit_directory(self._output, self._plan.allowed)

    @property
    def _publishing(self) -> Path:
        """Exists once everything is written and only has to be moved."""
        return self._staging / "publishing"

    def _is_prepared(self) -> bool:
        """Return whether this plan was already prepared here. Raises BadInputError if another plan was."""
        done = self._output / MANIFESTS / PREPARED
        if self._output.is_symlink() or (self._output.exists() and not self._output.is_dir()):
            raise BadInputError(f"{self._output}: is not a directory: name one, or a path where there is nothing yet")
        if not done.exists():
            return False
        if json.loads(done.read_text(encoding="utf-8")).get("plan_sha256") != self._plan.sha256:
            raise BadInputError(f"{self._output}: holds other datasets already: prepare these into another directory")
        # The directory is left from a kill after the last step.
        shutil.rmtree(self._staging, ignore_errors=True)
        return True

    def _open_staging(self) -> None:
        marker = self._staging / "plan.sha256"
        if marker.exists() and marker.read_text(encoding="utf-8") != self._plan.sha256:
            # The plan was changed since, so nothing in the directory can be trusted.
            shutil.rmtree(self._staging)
        if not self._staging.exists():
            names = [name for dataset in self._plan.datasets for name in (dataset.name, f"{dataset.name}.parquet")]
            for name in (*names, MANIFESTS):
                if (self._output / name).exists() or (self._output / name).is_symlink():
                    raise BadInputError(f"{self._output / name}: is there already: prepare into an empty directory")
        try:
            self._staging.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInputError(f"{self._output}: cannot be written: {error.strerror}") from error
        write_text(marker, self._plan.sha256)

    def _dataset(self, dataset: DatasetPlan) -> PreparedDataset:
        """Prepare a dataset in the staging directory, continuing an earlier attempt."""
        work, final = self._staging / "work" / dataset.name, self._staging / "final"
        done = work / "done.json"
        if done.exists():
            return PreparedDataset.from_json(json.loads(done.read_text(encoding="utf-8")))
        copies = self._raw_copies(dataset, work, final / dataset.name)
        dataset = replace(dataset, version=dataset.version or self._hub_version(dataset, work / "version"))
        parts = PartDirectory(work / "parts", dataset.role)
        self._read(dataset, final / dataset.name, copies, parts)
        kept, removed = parts.merge(
            records=final / f"{dataset.name}.parquet",
            manifest=final / MANIFESTS / f"{dataset.name}.jsonl",
            texts=final / MANIFESTS / "texts" / f"{dataset.name}.jsonl",
            duplicates=work / "duplicates.jsonl",
        )
        sources = tuple(PreparedSource(copy.name, copy.source, copy.bytes, copy.sha256) for copy in copies)
        prepared = PreparedDataset(
            name=dataset.name,
            role=dataset.role,
            split=dataset.split,
            version=dataset.version,
            licence=dataset.licence,
            source_url=dataset.source_url,
            sources=sources,
            kept=kept,
            removed=removed,
        )
        write_text(final / dataset.name / "SOURCES.json", json.dumps(asdict(prepared), indent=1) + "\n")
        write_text(done, json.dumps(asdict(prepared)))
        shutil.rmtree(work / "parts")
        return prepared

    def _hub_version(self, dataset: DatasetPlan, note: Path) -> str:
        """Return the hub's commit of a dataset, the same after a kill; empty for other sources."""
        if not note.exists():
            sources = [source for source in dataset.sources if source.startswith(HUB_SCHEME)]
            write_text(note, " ".join(dict.fromkeys(self._hub_commit(source) for source in sources)))
        return note.read_text(encoding="utf-8")

    def _raw_copies(self, dataset: DatasetPlan, notes: Path, directory: Path) -> list[CopiedFile]:
        copies: list[CopiedFile] = []
        sources = [
            file
            for source in dataset.sources
            for file in (
                [source]
                if source.startswith(SANDBOX_FUSION_SCHEME)
                else [each.name for each in list_files(Source(source, self._plan.base_dir))]
            )
        ]
        for number, source in enumerate(sources):
            name = _raw_name(source)
            if any(copy.name == name for copy in copies):
                name = f"{number}-{name}"
            note = notes / f"{name}.copied.json"
            if note.exists():
                copies.append(CopiedFile(**json.loads(note.read_text(encoding="utf-8"))))
                continue
            copies.append(self._raw_copy(dataset, source, directory / name))
            write_text(note, json.dumps(asdict(copies[-1])))
        return copies

    def _raw_copy(self, dataset: DatasetPlan, source: str, target: Path) -> CopiedFile:
        def report_copied(size: int) -> None:
            self._report(PrepareProgress(dataset.name, "copying", size))

        if not source.startswith(SANDBOX_FUSION_SCHEME):
            return copy_source(source, self._plan.base_dir, target, report_copied)
        fetched = target.with_name(f".{target.name}.fetched")
        fetched.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._fetch_rows(source, fetched)
            return replace(copy_source(str(fetched), Path(), target, report_copied), source=source)
        finally:
            fetched.unlink(missing_ok=True)

    def _read(self, dataset: DatasetPlan, raw: Path, copies: list[CopiedFile], parts: PartDirectory) -> None:
        ids: set[str] = set()
        first_id: dict[str, str] = {}
        for problem_id, digest in parts.read_committed():
            ids.add(problem_id)
            first_id.setdefault(digest, problem_id)
        part, consumed, skip = DataPart(), 0, parts.consumed
        for problem, row in _read_rows(dataset, raw, copies):
            consumed += 1
            if consumed <= skip:
                continue
            _check(problem, row)
            if problem.problem_id in ids:
                raise row.error(
                    f"problem '{problem.problem_id}' of dataset '{dataset.name}' is there twice: keep one of them, or "
                    "give it another problem_id"
                )
            ids.add(problem.problem_id)
            _add(part, dataset, problem, row, consumed - 1, first_id)
            if part.full:
                parts.commit(part, consumed)
                part = DataPart()
            self._report(PrepareProgress(dataset.name, "reading", consumed))
        if part.rows or part.duplicates:
            parts.commit(part, consumed)

    def _assemble(self, datasets: list[PreparedDataset]) -> None:
        """Write the files about all datasets."""
        manifests = self._staging / "final" / MANIFESTS
        duplicates: dict[str, list[str]] = {}
        for dataset in datasets:
            held = duplicates.setdefault(dataset.split or dataset.name, [])
            held.append((self._staging / "work" / dataset.name / "duplicates.jsonl").read_text(encoding="utf-8"))
        for split, lines in duplicates.items():
            write_text(manifests / f"duplicates_{split}.jsonl", "".join(lines))
        write_text(manifests / DATASETS, json.dumps([asdict(dataset) for dataset in datasets], indent=1) + "\n")

    def _publish(self) -> None:
        """Move everything to its place, `prepared.json` last. Each step can be repeated after a kill."""
        final = self._staging / "final"
        for file in sorted(final.rglob("*")):
            if file.is_file():
                target = self._output / file.relative_to(final)
                target.parent.mkdir(parents=True, exist_ok=True)
                file.replace(target)
                sync_directory(target.parent)
        prepared = {"schema": 1, "plan_sha256": self._plan.sha256}
        write_text(self._output / MANIFESTS / PREPARED, json.dumps(prepared) + "\n")
        shutil.rmtree(self._staging)


def _read_rows(dataset: DatasetPlan, raw: Path, copies: list[CopiedFile]) -> Iterator[tuple[Problem, Row]]:
    """Yield the problems of every raw copy; complaints name the source as the user did."""
    for copy in copies:
        path, found = raw / copy.name, False
        try:
            for problem, row in iter_source_rows(str(path), dataset.name, plain_text=dataset.role == "train"):
                found = True
                yield problem, replace(row, source=copy.source)
        except BadInputError as error:
            raise BadInputError(str(error).replace(str(path), copy.source)) from error
        if not found:
            raise BadInputError(
                f"{copy.source}: no problem of dataset '{dataset.name}' there: write the name that its rows have"
            )


def _check(problem: Problem, row: Row) -> None:
    """Refuse a problem that readers accept but no evaluation can use."""
    if not problem.prompt.strip():
        raise row.error(f"problem '{problem.problem_id}' has a blank prompt: write the task's text, or remove the row")
    for name, text in (("problem_id", problem.problem_id), ("prompt", problem.prompt)):
        if "\0" in text:
            raise row.error(f"field '{name}' has a NUL byte at character {text.index(chr(0))}: remove it")
    if len(problem.problem_id.splitlines()) > 1:
        raise row.error(f"field 'problem_id' is {problem.problem_id!r}: write it in one line")


def _add(
    part: DataPart, dataset: DatasetPlan, problem: Problem, row: Row, index: int, first_id: dict[str, str]
) -> None:
    """Add a problem to the part, or to its duplicates if an earlier problem has the same canonical text."""
    # A format of a benchmark calls every file's split test.
    own_split = "train" if dataset.role == "train" and problem.split == "test" else problem.split
    problem = replace(problem, role=dataset.role, split=dataset.split or own_split)
    line = manifest_line(problem, version=dataset.version, source_url=dataset.source_url, licence=dataset.licence)
    first = first_id.setdefault(line.prompt_sha256, problem.problem_id)
    if first != problem.problem_id:
        part.duplicates.append(json.dumps({**asdict(line), "duplicate_of": first}, ensure_ascii=False) + "\n")
        return
    part.rows.append(make_columns(problem, index, find_solution(row)))
    part.manifest.append(line)
    part.texts.append(problem_text(problem, find_solution(row)))
    part.bytes += len(problem.prompt) + _test_characters(problem)


def _test_characters(problem: Problem) -> int:
    match problem.ground_truth:
        case StdioTests(inputs, outputs):
            return sum(map(len, inputs)) + sum(map(len, outputs))
        case AssertTests(asserts):
            return sum(map(len, asserts))
        case CheckTest(prompt, test):
            return len(prompt) + len(test)
        case _:
            return 0


def _raw_name(source: str) -> str:
    """Return the name of a raw copy: the last part of the source, which also identifies published files."""
    if source.startswith(SANDBOX_FUSION_SCHEME):
        # Not NAME.jsonl: humaneval.jsonl would be read as the published file.
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", source.removeprefix(SANDBOX_FUSION_SCHEME))
        return f"sandboxfusion-{plain}.jsonl"
    name = re.split(r"[/\\]", re.split(r"[?#]", source)[0])[-1]
    return name.lstrip(".") or "data"
