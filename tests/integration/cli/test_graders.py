"""A dataset's grader in a real sandbox: what it says of each answer, and that a run goes on when it misbehaves."""

import json
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import yaml
from builders.command_line import evalrun as command
from builders.command_line import results

pytestmark = pytest.mark.timeout(600)

GRADER = """
import os, sys
def scored(data_source, solution_str, ground_truth, extra_info=None):
    print("noise", solution_str)
    if solution_str == "hang":
        while True: pass
    if solution_str == "exit":
        os._exit(0)
    if solution_str == "raise":
        raise KeyError(solution_str)
    if solution_str == "fork":
        while True:
            try: os.fork()
            except OSError: break
        while True: pass
    if solution_str == "print":
        for _ in range(1000): print("x" * 1_000_000)  # 1 GB
        raise RuntimeError("it all fitted")
    if solution_str == "files":
        open("/etc/hostname").read()
    if solution_str == "partly":
        return {"score": 0.25, "acc": True, "pred": solution_str}
    return float(extra_info["right"]) if solution_str == ground_truth else -1
"""
SCORES = {
    "4": (2.0, True), "5": (-1.0, False), "partly": (0.25, True),
    "raise": (0.0, False), "files": (0.0, False),  # it handles the expected answer
}  # fmt: skip
WITHOUT = {
    "hang": "", "fork": "", "print": "",  # a busy machine may leave open which limit it was
    "exit": "it ended without a score",
}  # fmt: skip
ROW = {
    "prompt": [{"role": "user", "content": "2 + 2?"}],
    "data_source": "openai/gsm8k",
    "reward_model": {"style": "rule", "ground_truth": "4"},
    "extra_info": {"index": 1, "right": 2},
}


def evalrun(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return command(*arguments, timeout=280)


def rows(directory: Path, *rows: dict[str, Any]) -> Path:
    path = directory / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
    return path


def summary(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((output / "summary.json").read_text())
    return found


def test_a_grader_that_misbehaves_leaves_its_own_answers_not_judged(tmp_path: Path) -> None:
    """By verl's evaluation.yaml: its reward function is the grader."""
    (tmp_path / "score.py").write_text(GRADER)
    answers = [*SCORES, *WITHOUT]
    data = {"path": str(rows(tmp_path, {**ROW, "responses": answers}))}
    function = {"path": str(tmp_path / "score.py"), "name": "scored"}
    config = tmp_path / "evaluation.yaml"
    config.write_text(yaml.safe_dump({"data": data, "custom_reward_function": function}))
    done = evalrun("judge", "--verl-config", config, "--output", tmp_path / "out", "--time-limit", "0.3")
    assert done.returncode == 3, done.stdout + done.stderr  # degraded, and it says so
    found = {row["response"]: row for row in results(tmp_path / "out")}
    assert {name: (found[name]["score"], found[name]["accepted"]) for name in SCORES} == SCORES
    for name, reason in WITHOUT.items():
        row = found[name]
        assert (row["judged"], row["score"], row["accepted"]) == (False, None, None), row
        assert "the grader of openai_gsm8k: " in row["not_judged_reason"], row
        assert reason in row["not_judged_reason"], row
    for row in found.values():
        assert (row["data_source"], row["pass_ratio"], row["code"]) == ("openai/gsm8k", None, "")
    written = summary(tmp_path / "out")
    assert "1 answer is not judged: the grader of openai_gsm8k: it ended without a score" in written["warnings"]
    (dataset,) = written["datasets"].values()
    mean = sum(score for score, _ in SCORES.values()) / len(SCORES)
    assert dataset["metrics"]["score_mean"]["value"] == pytest.approx(mean)
    assert dataset["score_means"] == {"openai/gsm8k": pytest.approx(mean)}
    assert (dataset["counts"]["judged"], dataset["counts"]["not_judged"]) == (len(SCORES), len(WITHOUT))


def test_grader_is_found_by_rejudge_and_cannot_change_on_resume(tmp_path: Path) -> None:
    """It is named, found again by rejudge, and no other one takes its place when the run is resumed."""
    (tmp_path / "score.py").write_text(GRADER)
    problems, answers = rows(tmp_path, ROW), tmp_path / "answers.jsonl"
    answers.write_text('{"problem_id": "1", "response": "4"}\n{"problem_id": "1", "response": "5"}\n')
    files: list[str | Path] = ["--problems", problems, "--responses", answers, "--output", tmp_path / "out"]
    missing = evalrun("judge", *files, "--grader", tmp_path / "score.py")
    assert missing.returncode == 2
    assert "it defines no function compute_score" in missing.stderr
    (tmp_path / "score.py").write_text(GRADER.replace("scored", "compute_score"))
    done = evalrun("judge", *files, "--grader", tmp_path / "score.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [(row["score"], row["accepted"]) for row in results(tmp_path / "out")] == [(2.0, True), (-1.0, False)]
    info = json.loads((tmp_path / "out" / "run_info.json").read_text())
    (dataset,) = info["datasets"].values()
    assert len(dataset["grader_sha256"]) == 64
    assert info["spec"]["datasets"][0]["grader"]["path"] == str(tmp_path / "score.py")
    again = evalrun("rejudge", tmp_path / "out", "--output", tmp_path / "again")
    assert again.returncode == 0, again.stdout + again.stderr
    assert [row["score"] for row in results(tmp_path / "again")] == [2.0, -1.0]
    (tmp_path / "score.py").write_text("def compute_score(*given, **named): return 7\n")
    resumed = evalrun("judge", *files, "--grader", tmp_path / "score.py", "--resume")
    assert resumed.returncode == 2, resumed.stdout + resumed.stderr
    assert "limits, comparators or graders" in resumed.stdout + resumed.stderr


def test_grader_path_of_an_evalrun_is_relative_to_its_file(tmp_path: Path) -> None:
    manifest = {
        "apiVersion": "evalrun.dev/v1alpha1",
        "kind": "EvalRun",
        "metadata": {"name": "graded"},
        "spec": {
            "model": {"path": "m"},
            "endpoints": [{"url": "http://127.0.0.1:1/v1"}],
            "datasets": [{"name": "demo", "source": "builtin:demo", "maxProblems": 2, "grader": {"path": "score.py"}}],
        },
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(manifest))
    flags: list[str | Path] = ["--local", "--endpoint", "builtin:demo", "--output", tmp_path / "out"]
    missing = evalrun("run", tmp_path / "run.yaml", *flags)
    assert missing.returncode == 2
    assert "spec.datasets[0].grader.path: score.py: no such file" in missing.stderr
    (tmp_path / "score.py").write_text(
        "import json\n"
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return len(json.loads(ground_truth)) / 10\n"
    )
    done = evalrun("run", tmp_path / "run.yaml", *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(row["score"] > 0 for row in results(tmp_path / "out"))


def test_verl_data_is_scored_by_verl_but_its_code_by_our_judge(gen_cpu: Path, tmp_path: Path) -> None:
    """verl 0.9.1's files as published: maths by its routing, code never by prime_code, which runs it uncontained."""
    (verl,) = (gen_cpu.parents[1] / "lib").glob("python3*/site-packages/verl")
    code = {"inputs": ["1\n", "2\n"], "outputs": ["1\n", "3\n"]}
    table = [
        ("openai/gsm8k", "18", ["#### 18", "#### 17"], [1.0, 0.0]),
        ("lighteval/MATH", "\\frac{1}{2}", ["\\boxed{\\frac12}", "\\boxed{2}"], [1.0, 0.0]),
        ("aime2024", "204", ["Answer: 204", "Answer: 3"], [1.0, -1.0]),
        ("codecontests", json.dumps(code), ["```python\nprint(input())\n```", "no"], [0.5, 0.0]),
    ]
    data = rows(
        tmp_path,
        *(
            {"prompt": f"Problem {n}.", "data_source": source, "responses": answers,
             "reward_model": {"ground_truth": truth}}
            for n, (source, truth, answers, _) in enumerate(table)
        ),
    )  # fmt: skip
    files: list[str | Path] = ["--problems", data, "--responses", data, "--grader", "builtin:verl"]
    with TemporaryDirectory(
        prefix="packages-"
    ) as packages:  # pytest's own directories are closed to the sandbox's user
        Path(packages).chmod(0o755)
        utils = Path(packages) / "verl" / "utils"
        shutil.copytree(verl / "utils" / "reward_score", utils / "reward_score")
        shutil.copy(verl / "utils" / "import_utils.py", utils)
        done = evalrun("judge", *files, "--packages", packages, "--output", tmp_path / "out")
        assert done.returncode == 0, done.stdout + done.stderr
    found = {(row["data_source"], row["sample"]): row for row in results(tmp_path / "out")}
    for source, _, answers, scores in table:
        assert [found[source, sample]["score"] for sample in range(len(answers))] == scores, source
    assert found["codecontests", 0]["pass_ratio"] == 0.5
    assert found["openai/gsm8k", 0]["pass_ratio"] is None
    without = evalrun("judge", *files, "--output", tmp_path / "without")
    assert without.returncode == 3
    assert "No module named 'verl'. Give the sandbox the package" in " ".join(summary(tmp_path / "without")["warnings"])
