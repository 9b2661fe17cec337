"""`evalrun attest` and `evalrun verify` as people use them, on answers that are really judged."""

import json
import shutil
from pathlib import Path

import pytest
from builders.attested_runs import edit_row, new_key
from builders.command_line import evalrun

PROBLEMS = [
    {
        "dataset": "sums",
        "problem_id": f"sums/{place}",
        "prompt": f"Read a number and print it plus {place}.",
        "ground_truth": {"inputs": ["1\n", "40\n"], "outputs": [f"{1 + place}\n", f"{40 + place}\n"]},
    }
    for place in range(4)
]
ANSWERS = ["print(int(input()))", "print(int(input()) + 1)", "print(int(input()) + 2)", "print('no')"]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a judged run of four answers, three of them right, and two keys."""
    folder = tmp_path_factory.mktemp("judged")
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PROBLEMS))
    answers = [
        {"problem_id": row["problem_id"], "response": code, "mode": "standalone"}
        for row, code in zip(PROBLEMS, ANSWERS, strict=True)
    ]
    (folder / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in answers))
    new_key(folder)
    new_key(folder, "other.pem")
    done = evalrun(
        *("judge", "--problems", folder / "problems.jsonl", "--responses", folder / "answers.jsonl"),
        *("--output", folder / "run"),
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def attested(judged: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of that folder whose run is attested."""
    folder = tmp_path_factory.mktemp("attested") / "signed"
    shutil.copytree(judged, folder)
    done = evalrun("attest", folder / "run", "--key", folder / "key.pem")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def signed(attested: Path, tmp_path: Path) -> Path:
    """That folder once more, for a test that changes it."""
    shutil.copytree(attested, tmp_path / "signed")
    return tmp_path / "signed"


def test_attested_run_is_verified_with_every_answer_judged_again(signed: Path) -> None:
    done = evalrun("verify", signed / "run.bundle.tar", "--trust", signed / "key.pub", "--all")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4 drawn answers have the same verdict when judged again" in done.stdout
    assert done.stdout.endswith("run.bundle.tar: verified\n")


def test_bundle_is_undecided_without_trust_and_refused_with_trust_in_another_key(signed: Path) -> None:
    done = evalrun("verify", signed / "run.bundle.tar", "--sample", "0", "--json")
    assert done.returncode == 5, done.stdout + done.stderr
    assert json.loads(done.stdout)["outcome"] == "cannot_tell"
    other = evalrun("verify", signed / "run.bundle.tar", "--sample", "0", "--trust", signed / "other.pub")
    assert other.returncode == 4
    assert "none of the trusted ones" in other.stdout


def test_directory_of_a_run_is_verified_until_a_file_is_changed(signed: Path) -> None:
    done = evalrun("verify", signed / "run", "--trust", signed / "key.pub", "--sample", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    (signed / "run" / "metrics.json").write_text("{}")
    done = evalrun("verify", signed / "run", "--trust", signed / "key.pub", "--sample", "2")
    assert done.returncode == 4
    assert "metrics.json was changed" in done.stdout


def test_signer_who_claims_another_verdict_is_found_by_judging(signed: Path) -> None:
    """Everything is signed and consistent: the only lie is that this answer passes."""
    edit_row(signed / "run", 1, response="print('something else')")
    assert evalrun("attest", signed / "run", "--key", signed / "key.pem").returncode == 0
    done = evalrun("verify", signed / "run.bundle.tar", "--trust", signed / "key.pub")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "sums sums/1#0: accepted was True, is False" in done.stdout
    assert "test 0: was success, is wrong_answer" in done.stdout
    assert "environments: then evalrun" in done.stdout


def test_run_whose_aggregator_has_a_key_is_signed_when_it_ends(
    judged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a cluster, where the aggregator gets the key out of a Secret."""
    monkeypatch.setenv("EVALRUN_AGGREGATOR_ATTEST_KEY", (judged / "key.pem").read_text())
    done = evalrun(
        *("judge", "--problems", judged / "problems.jsonl", "--responses", judged / "answers.jsonl"),
        *("--output", tmp_path / "run"),
    )
    assert done.returncode == 0, done.stderr
    signer = json.loads((tmp_path / "run" / "run_info.json").read_text())["attested_by"]
    monkeypatch.delenv("EVALRUN_AGGREGATOR_ATTEST_KEY")
    done = evalrun("verify", tmp_path / "run" / "bundle.tar", "--trust", judged / "key.pub")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"signed by the trusted key {signer}" in done.stdout
    for log in (tmp_path / "run" / "logs").iterdir():
        assert "PRIVATE KEY" not in log.read_text()


def test_run_with_an_invalid_attest_key_is_refused_at_its_start(
    judged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALRUN_AGGREGATOR_ATTEST_KEY", "no key")
    done = evalrun(
        *("judge", "--problems", judged / "problems.jsonl", "--responses", judged / "answers.jsonl"),
        *("--output", tmp_path / "run"),
    )
    assert done.returncode == 2, done.stderr
    assert "EVALRUN_AGGREGATOR_ATTEST_KEY: no PEM private key: openssl genpkey" in done.stderr


def test_hidden_tests_are_undecided_until_the_openings_are_given(signed: Path) -> None:
    done = evalrun("attest", signed / "run", "--key", signed / "key.pem", "--without-tests")
    assert done.returncode == 0, done.stderr
    openings = signed / "run.bundle.tar.openings.jsonl"
    assert openings.stat().st_mode & 0o777 == 0o600
    bundle = ("verify", signed / "run.bundle.tar", "--trust", signed / "key.pub", "--all")
    hidden = evalrun(*bundle)
    assert hidden.returncode == 5, hidden.stdout + hidden.stderr
    assert "sums: its tests are hidden" in hidden.stdout
    shown = evalrun(*bundle, "--openings", openings)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "sums: 4 of 4 hidden problems are those committed to" in shown.stdout


def test_gate_that_requires_an_attested_baseline_refuses_others(signed: Path, judged: Path) -> None:
    policy = signed / "gates.yaml"
    policy.write_text('- {baseline: run, dataset: sums, metric: accepted_at_1, maxRegression: "0.9"}\n')
    gate = ("gate", judged / "run", "--policy", policy, "--require-attested")
    assert "name the keys that you trust" in evalrun(*gate).stderr
    assert evalrun(*gate, "--trust", signed / "key.pub").returncode in (0, 5)
    refused = evalrun(*gate, "--trust", signed / "other.pub")
    assert refused.returncode == 2
    assert "none of the trusted ones: sign it with evalrun attest" in refused.stderr
    revoked = signed / "revoked.jsonl"
    taken_back = evalrun(
        *("attest", signed / "run.bundle.tar", "--key", signed / "key.pem"),
        *("--revoke", "wrong tests", "--output", revoked),
    )
    assert taken_back.returncode == 0, taken_back.stderr
    refused = evalrun(*gate, "--trust", signed / "key.pub", "--revocations", revoked)
    assert refused.returncode == 2
    assert "wrong tests" in refused.stderr
    (signed / "run" / "attestation.json").unlink()
    refused = evalrun(*gate, "--trust", signed / "key.pub")
    assert refused.returncode == 2
    assert "is not attested" in refused.stderr


def test_leaderboard_marks_runs_signed_by_a_trusted_key(signed: Path, judged: Path) -> None:
    def attested(*trust: str | Path) -> list[bool | None]:
        done = evalrun("leaderboard", signed / "run", judged / "run", "--format", "json", *trust)
        assert done.returncode == 0, done.stderr
        entries = json.loads(done.stdout)["tables"][0]["entries"]
        found = {each["places"][0]: each["attested"] for each in entries}
        return [found[str(signed / "run")], found[str(judged / "run")]]

    assert attested() == [None, None]
    assert attested("--trust", signed / "key.pub") == [True, False]
    assert attested("--trust", signed / "other.pub") == [False, False]
    with (signed / "run" / "summary.json").open("a") as summary:
        summary.write("\n")
    assert attested("--trust", signed / "key.pub") == [False, False]
