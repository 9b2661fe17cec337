"""Signed runs: what attestations are checked with."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from builders.results.stored_runs import verdicts_of, write_run
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from evalrun_attest.bundle import JudgedProblems, WrittenBundle, write_bundle
from evalrun_attest.checks import Finding, Outcome, check_figures, check_problems, check_rows, open_bundle
from evalrun_attest.checks import read_bundled_problems as problems_in
from evalrun_attest.keys import SigningKey
from evalrun_attest.signatures import Signer
from evalrun_data.digest import digest_problems
from evalrun_data.formats.record import make_problem_record, parse_record
from evalrun_data.rows import Row

SPEC: dict[str, Any] = {"model": {"path": "org/model"}, "datasets": [{"name": "humaneval", "source": "h.jsonl"}]}


def new_key(folder: Path, name: str = "key.pem") -> SigningKey:
    """Write a new private key, and its public key as NAME.pub."""
    private = Ed25519PrivateKey.generate()
    path = folder / name
    path.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    key = SigningKey.read(path)
    path.with_suffix(".pub").write_text(key.public.pem)
    return key


def some_problems(count: int) -> JudgedProblems:
    """Make problems of the dataset humaneval that `verdicts_of` has results of."""
    rows = [
        {
            "dataset": "humaneval",
            "problem_id": f"P/{place:05}",
            "prompt": f"Print {place}.",
            "ground_truth": {"inputs": [f"in {place}\n"], "outputs": [f"hidden output {place}\n"]},
        }
        for place in range(count)
    ]
    problems = [parse_record(Row(row, "h.jsonl", number), None) for number, row in enumerate(rows, 1)]
    return JudgedProblems([make_problem_record(each) for each in problems], digest_problems(problems))


def signed_run(
    folder: Path, accepted: Sequence[bool | None], *, key: "Signer | None" = None, hide_tests: bool = False
) -> tuple[Path, WrittenBundle]:
    """Write a run of one sample per problem, and sign it. Returns the bundle's file, and what was written."""
    problems = some_problems(len(accepted))
    run_info = {
        "run": "signed",
        "spec": SPEC,
        "gpu_seconds": 0.0,
        "datasets": {"humaneval": {"records_sha256": problems.records_sha256, "grader_sha256": None}},
    }
    run = write_run(folder / "run", verdicts_of(accepted), **run_info)
    target = folder / "run.bundle.tar"
    salts = random.Random(1)
    written = write_bundle(
        run,
        {"humaneval": problems},
        key or new_key(folder),
        target,
        hide_tests=hide_tests,
        make_salt=salts.randbytes,
    )
    return target, written


def check_bundle(bundle: Path, scratch: Path) -> list[Finding]:
    """Run every check of a bundle that judges nothing."""
    scratch.mkdir()
    run, findings = open_bundle(bundle, scratch)
    if run is None or any(finding.outcome is Outcome.DIFFERS for finding in findings):
        return findings
    rows = check_rows(run, 5, seed=1)
    findings += rows.findings
    if any(finding.outcome is Outcome.DIFFERS for finding in findings):
        return findings
    return findings + check_figures(run, rows) + check_problems(run, problems_in(run))


def texts_of(findings: Sequence[Finding], outcome: Outcome) -> list[str]:
    """Return the texts of the findings with an outcome."""
    return [finding.text for finding in findings if finding.outcome is outcome]


def edit_row(run: Path, index: int, **fields: object) -> None:
    """Change fields of a row of results.jsonl."""
    path = run / "results.jsonl"
    lines = path.read_text().splitlines()
    lines[index] = json.dumps({**json.loads(lines[index]), **fields})
    path.write_text("".join(line + "\n" for line in lines))
