"""`evalrun attest --sigstore` and `evalrun verify --identity` as people use them, at an instance on loopback."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.attested_runs import edit_row
from builders.command_line import Command, evalrun, judge_rows
from builders.sigstore_instance import ISSUER, NAME, Instance, served

PROBLEM = {
    "dataset": "sums",
    "problem_id": "sums/0",
    "prompt": "Read a number and print it.",
    "ground_truth": {"inputs": ["1\n"], "outputs": ["1\n"]},
}
ANSWER = {"problem_id": "sums/0", "response": "print(input())", "mode": "standalone"}
TRUSTED = ("--identity", NAME, "--issuer", ISSUER, "--trust-config")


@pytest.fixture(scope="module")
def instance() -> Iterator[Instance]:
    """An instance, and the environment of a job in GitHub Actions that it gives an identity."""
    with served(Instance.create()) as found, pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("GITHUB_ACTIONS", "true")
        patch.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", f"{found.url}/token")
        patch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "of-the-job")
        yield found


@pytest.fixture(scope="module")
def signed(instance: Instance, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that the identity of a CI job has signed, and the trust config of the instance."""
    folder = tmp_path_factory.mktemp("signed")
    trust = instance.write_trust_config(folder)
    judged = judge_rows(folder, [PROBLEM], [ANSWER])
    assert judged.returncode == 0, judged.stderr
    done = evalrun("attest", folder / "run", "--sigstore", "--trust-config", trust)
    assert done.returncode == 0, done.stderr
    assert f"signed by {NAME} ({ISSUER})" in done.stdout
    assert f"--identity {NAME} --issuer {ISSUER} --trust-config {trust}" in done.stdout
    return folder


@pytest.fixture
def copied(signed: Path, tmp_path: Path) -> Path:
    shutil.copytree(signed, tmp_path / "copied")
    return tmp_path / "copied"


def test_run_signed_by_a_ci_job_is_verified(signed: Path) -> None:
    done = evalrun("verify", signed / "run.bundle.tar", *TRUSTED, signed / "trust.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"ok          signed by the trusted identity {NAME} ({ISSUER})" in done.stdout
    assert "note        not known without a network" in done.stdout
    assert "1 of 1 drawn answers have the same verdict" in done.stdout
    assert done.stderr == ""


def test_bundle_of_unnamed_identity_is_undecided(evalrun_here: Command, signed: Path) -> None:
    verify = ("verify", signed / "run.bundle.tar", "--sample", "0", "--trust-config", signed / "trust.json")
    done = evalrun_here(*verify)
    assert done.returncode == 5, done.stdout + done.stderr
    assert f"nobody said whether to trust it (--identity {NAME} --issuer {ISSUER})" in done.stdout
    half = evalrun_here(*verify, "--identity", NAME)
    assert half.returncode == 2
    assert "--identity and --issuer: write both" in half.stderr


def test_other_identity_differs(evalrun_here: Command, signed: Path) -> None:
    verify = ("verify", signed / "run.bundle.tar", "--sample", "0", "--trust-config", signed / "trust.json")
    done = evalrun_here(*verify, "--identity", "eve@example.org", "--issuer", ISSUER)
    assert done.returncode == 4, done.stdout + done.stderr
    assert f"the identity is {NAME}, not eve@example.org" in done.stdout


def test_file_changed_after_signing_differs(evalrun_here: Command, copied: Path) -> None:
    edit_row(copied / "run", 0, response="print('something else')")
    done = evalrun_here("verify", copied / "run", *TRUSTED, copied / "trust.json")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "results.jsonl was changed" in done.stdout


def test_revoked_attestation_differs(evalrun_here: Command, signed: Path, tmp_path: Path) -> None:
    revoked, trust = tmp_path / "revoked.jsonl", signed / "trust.json"
    taken_back = evalrun_here(
        *("attest", signed / "run.bundle.tar", "--sigstore", "--trust-config", trust),
        *("--revoke", "wrong tests", "--output", revoked),
    )
    assert taken_back.returncode == 0, taken_back.stderr
    done = evalrun_here("verify", signed / "run.bundle.tar", *TRUSTED, trust, "--sample", "0", "--revocations", revoked)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "revoked by its signer" in done.stdout
    policy = signed / "gates.yaml"
    policy.write_text('- {baseline: run, dataset: sums, metric: accepted_at_1, maxRegression: "0.9"}\n')
    gate = ("gate", signed / "run", "--policy", policy, "--require-attested", *TRUSTED, trust)
    assert evalrun_here(*gate).returncode in (0, 5)
    refused = evalrun_here(*gate, "--revocations", revoked)
    assert refused.returncode == 2
    assert "wrong tests" in refused.stderr


def test_leaderboard_marks_a_run_signed_by_the_trusted_identity(evalrun_here: Command, copied: Path) -> None:
    trust = copied / "trust.json"
    board = evalrun_here("leaderboard", copied / "run", "--format", "json", *TRUSTED, trust)
    assert board.returncode == 0, board.stderr
    assert json.loads(board.stdout)["tables"][0]["entries"][0]["attested"] is True


def test_published_verifier_accepts_the_attestation(signed: Path) -> None:
    """Others need no evalrun to see who signed a file: its digest is in the statement."""
    command = [sys.executable, "-m", "sigstore", "--trust-config", signed / "trust.json", "verify", "identity"]
    command += ["--bundle", signed / "run" / "attestation.json", "--cert-identity", NAME, "--cert-oidc-issuer", ISSUER]
    done = subprocess.run([*map(str, command), signed / "run" / "summary.json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    other = subprocess.run([*map(str, command), signed / "trust.json"], capture_output=True, text=True)
    assert other.returncode != 0


def test_attest_in_a_ci_job_without_an_identity_is_refused(
    evalrun_here: Command, signed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN")
    none = evalrun_here("attest", signed / "run", "--sigstore", "--trust-config", signed / "trust.json")
    assert none.returncode == 2
    assert "this environment has no identity" in none.stderr


def test_token_file_signs_outside_of_ci(
    evalrun_here: Command, instance: Instance, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS")
    attest = ("attest", copied / "run", "--sigstore", "--trust-config", copied / "trust.json")
    (copied / "token").write_text(instance.authority.token("ann@example.org") + "\n")
    done = evalrun_here(*attest, "--identity-token-file", copied / "token")
    assert done.returncode == 0, done.stderr
    assert f"signed by ann@example.org ({ISSUER})" in done.stdout
