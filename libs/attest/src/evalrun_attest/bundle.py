"""Writes a run's attestation and the bundle that a stranger can check by itself."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from evalrun_attest.archive import digest_file, is_plain_name, pack, write_archive
from evalrun_attest.commitments import HiddenProblem, compute_root, hide_problems
from evalrun_attest.envelope import encode_statement
from evalrun_attest.merkle import MerkleTree
from evalrun_attest.run_files import (
    ATTESTATION,
    DERIVED,
    RESULTS,
    RUN_INFO,
    SUMMARY,
    VERDICTS,
    commitments_file,
    grader_file,
    output_names,
    problems_file,
    read_document,
    read_lines,
)
from evalrun_attest.signatures import SignedStatement, Signer, sign_statement
from evalrun_attest.statement import (
    ROW_SETS,
    AttestedDataset,
    File,
    RowSet,
    completion_row,
    make_statement,
    verdict_row,
)
from evalrun_runtime.atomic_files import atomic_file, write_atomically
from evalrun_runtime.exits import BadInputError


@dataclass(frozen=True)
class JudgedProblems:
    """Problems that a dataset's answers were judged by."""

    records: Sequence[Mapping[str, object]]
    records_sha256: str
    grader: str | None = None
    """Text of the grader's file; None if there is none, or if it is built in."""


@dataclass(frozen=True)
class WrittenBundle:
    """A bundle that was written."""

    envelope: SignedStatement
    hidden: Mapping[str, Sequence[HiddenProblem]]
    """Hidden problems with their salts, by dataset; empty if the bundle has the tests."""


@dataclass
class RowRoots:
    """Merkle roots over the rows of a run, read once."""

    trees: dict[str, MerkleTree] = field(default_factory=lambda: {name: MerkleTree() for name in ROW_SETS})

    def add(self, line: bytes, row: Mapping[str, object]) -> bytes:
        """Add a row of results.jsonl, and return its line in verdicts.jsonl."""
        verdict = encode_statement(verdict_row(row))
        self.trees["results"].add(line)
        self.trees["completions"].add(encode_statement(completion_row(row)))
        self.trees["verdicts"].add(verdict)
        return verdict

    def sets(self) -> dict[str, RowSet]:
        """Return count and root of each set."""
        return {name: RowSet(tree.count, tree.root()) for name, tree in self.trees.items()}


def write_bundle(
    folder: Path,
    problems: Mapping[str, JudgedProblems],
    signer: Signer,
    target: Path,
    *,
    hide_tests: bool,
    make_salt: Callable[[int], bytes],
) -> WrittenBundle:
    """Sign a run's outputs: write its attestation.json, and a bundle for others.

    Args:
        folder: the run's outputs.
        problems: by dataset.
        signer: a key, or an identity.
        target: the bundle's file.
        hide_tests: leave tests, and texts that quote them, out of the bundle, and commit to each problem by a
            salted hash instead.
        make_salt: returns the requested number of random bytes.

    Raises:
        BadInputError: the folder holds no finished run, a dataset has changed since the run was judged, or the
            identity cannot sign now.
        OSError: a file cannot be written; it names the file.
    """
    names = output_names(folder)
    summary, run_info = read_document(folder / SUMMARY), read_document(folder / RUN_INFO)
    _check_problems(problems, run_info)
    with TemporaryDirectory(prefix=".attest-", dir=target.resolve().parent) as staging:
        scratch = Path(staging)
        roots = RowRoots()
        with (scratch / "verdicts").open("wb") as verdicts:
            for line, row in read_lines(folder / RESULTS):
                verdict = roots.add(line, row)
                # Without hiding nobody reads the salts, and those of a million rows take gigabytes.
                if hide_tests:
                    verdicts.write(verdict + b"\n")
        places = {name: folder / name for name in names}
        left_out = set(DERIVED)
        hidden: dict[str, list[HiddenProblem]] = {}
        if hide_tests:
            left_out |= {RESULTS, *(name for name in names if name.startswith("qa_logs/"))}
            places[VERDICTS] = scratch / "verdicts"
            hidden = {name: hide_problems(each.records, make_salt) for name, each in problems.items()}
        for index, (name, text) in enumerate(_problem_files(problems, hidden)):
            places[name] = scratch / f"problems-{index}"
            places[name].write_text(text, encoding="utf-8")
        files = [_describe(name, path, None if name in left_out else scratch) for name, path in places.items()]
        datasets = {
            name: AttestedDataset(
                len(each.records),
                each.records_sha256,
                compute_root(problem.public_row for problem in hidden[name]) if hide_tests else None,
            )
            for name, each in problems.items()
        }
        envelope = sign_statement(make_statement(summary, run_info, files, roots.sets(), datasets), signer)
        write_atomically(folder / ATTESTATION, envelope.to_bytes())
        packed = [file for file in files if file.packed_sha256 is not None]
        members = [(ATTESTATION, folder / ATTESTATION)]
        members += [(f"{file.name}.gz", _make_packed_path(scratch, file.name)) for file in packed]
        with atomic_file(target) as archive:
            write_archive(archive, iter(members))
    return WrittenBundle(envelope, hidden)


def _check_problems(problems: Mapping[str, JudgedProblems], run_info: Mapping[str, object]) -> None:
    recorded = run_info.get("datasets")
    for name, each in problems.items():
        said = recorded.get(name) if isinstance(recorded, Mapping) else None
        if not isinstance(said, Mapping) or said.get("records_sha256") != each.records_sha256:
            raise BadInputError(
                f"dataset {name}: its source no longer holds the problems that the run was judged by: restore the "
                "source, or judge the run again with evalrun rejudge and attest that"
            )


def _problem_files(
    problems: Mapping[str, JudgedProblems], hidden: Mapping[str, Sequence[HiddenProblem]]
) -> Iterator[tuple[str, str]]:
    """Yield the name and text of each file that the run was judged by."""
    for name, each in problems.items():
        if name in hidden:
            yield commitments_file(name), _lines(problem.public_row for problem in hidden[name])
            continue
        yield problems_file(name), _lines(each.records)
        if each.grader is not None:
            yield grader_file(name), each.grader


def _lines(rows: "Iterator[Mapping[str, object]] | Sequence[Mapping[str, object]]") -> str:
    return "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows)


def _describe(name: str, path: Path, scratch: Path | None) -> File:
    """Return a file's description; with a scratch folder it is compressed there."""
    if not is_plain_name(f"{name}.gz"):
        raise BadInputError(f"{name}: its name is too long for a bundle: name the dataset in at most 60 characters")
    packed = None if scratch is None else pack(path, _make_packed_path(scratch, name))
    return File(name, digest_file(path), path.stat().st_size, packed)


def _make_packed_path(scratch: Path, name: str) -> Path:
    return scratch / f"packed-{name.replace('/', '-')}"
