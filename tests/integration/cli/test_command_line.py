"""The commands as a user types them: the demo, answers made elsewhere, judging again, and what bad input says."""

import gzip
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from builders.command_line import (
    DEMO,
    Command,
    child_running,
    demo_as_filed,
    evalrun,
    evalrun_started,
    processes_with,
    quick_demo,
    results,
    run_of,
    summary,
    verdicts,
)

ADD: dict[str, Any] = {
    "dataset": "sums",
    "problem_id": "add",
    "prompt": "Add two numbers.",
    "ground_truth": {"inputs": ["1 2\n", "5 7\n"], "outputs": ["3\n", "12\n"]},
}
RIGHT_IN_CPP = "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }"
RIGHT = "print(sum(map(int, input().split())))"


def write_lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of all of the demo set, in `out` beside the run's file; test_tutorial.py runs the demo's own file."""
    directory = tmp_path_factory.mktemp("demo")
    output = directory / "out"
    done = evalrun(*run_of(quick_demo(directory)), "--output", output)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "pass@1" in done.stdout
    assert f"results: {output}" in done.stdout
    return output


def test_demo_answers_get_their_filed_verdicts(demo: Path) -> None:
    assert verdicts(demo) == demo_as_filed()


def test_demo_writes_every_output_file(demo: Path) -> None:
    files = {str(path.relative_to(demo)) for path in demo.rglob("*") if path.is_file()}
    wanted = {"summary.json", "metrics.json", "run_info.json", "results.jsonl", "results.parquet"}
    assert wanted | {"qa_logs/demo_qa.jsonl", "qa_logs/qa_summary.json"} <= files
    assert summary(demo)["state"] == "Succeeded"


def test_resume_of_a_finished_run_changes_no_result(demo: Path) -> None:
    before = (demo / "results.jsonl").read_bytes()
    done = evalrun(*run_of(demo.parent / "demo.yaml"), "--resume", demo)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (demo / "results.jsonl").read_bytes() == before


def test_rejudge_gives_the_same_verdicts_and_leaves_the_run_unchanged(tmp_path: Path) -> None:
    first, again = tmp_path / "out", tmp_path / "again"
    done = evalrun(*run_of(quick_demo(tmp_path, problems=8)), "--output", first)
    assert done.returncode == 0, done.stdout + done.stderr
    before = (first / "summary.json").read_bytes()
    done = evalrun("rejudge", first, "--output", again)
    assert done.returncode == 0, done.stdout + done.stderr
    assert verdicts(again) == verdicts(first)
    assert len(set(verdicts(again).values())) > 1
    assert (first / "summary.json").read_bytes() == before


def test_answers_made_elsewhere_are_judged(tmp_path: Path) -> None:
    problems = write_lines(tmp_path / "problems.jsonl", ADD)
    responses = write_lines(
        tmp_path / "responses.jsonl",
        {"problem_id": "add", "response": f"Sure:\n```python\n{RIGHT}\n```"},
        {"problem_id": "add", "response": "print(3)", "mode": "standalone"},
        {"problem_id": "add", "response": RIGHT_IN_CPP, "mode": "standalone", "language": "cpp"},
    )
    done = evalrun("judge", "--problems", problems, "--responses", responses, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = results(tmp_path / "out")
    assert [(row["sample"], row["final_status"], row["pass_ratio"]) for row in rows] == [
        (0, "success", 1.0),
        (1, "wrong_answer", 0.5),
        (2, "success", 1.0),
    ]
    assert {"dataset", "problem_id", "sample", "accepted", "pass_ratio", "final_status", "tests"} <= rows[0].keys()


def test_judge_without_all_answers_is_degraded_and_passes_no_gate(tmp_path: Path) -> None:
    """100 passing answers of 164 scored 100 %, with full coverage, and passed a gate."""
    row = {"dataset": "contest", "prompt": "Print 1.", "ground_truth": {"inputs": [""], "outputs": ["1\n"]}}
    names = [f"p{number:02}" for number in range(40)]
    answers = [{"problem_id": name, "response": "print(1)", "mode": "full"} for name in names]
    problems = write_lines(tmp_path / "problems.jsonl", *({**row, "problem_id": name} for name in names))
    files = {"whole": answers, "some": answers[:25]}
    codes = {}
    for name, lines in files.items():
        responses = write_lines(tmp_path / f"{name}.jsonl", *lines)
        done = evalrun("judge", "--problems", problems, "--responses", responses, "--output", tmp_path / name)
        codes[name] = done.returncode
    assert codes == {"whole": 0, "some": 3}, done.stdout + done.stderr
    assert "25 of 40" in done.stdout
    assert "62.5 %" in done.stdout
    found = summary(tmp_path / "some")
    assert (found["state"], found["datasets"]["contest"]["accepted_bounds"]) == ("Degraded", [0.625, 1.0])
    lacking = ", ".join(f"p{number}" for number in range(25, 30))
    assert found["partial"] == f"15 of 40 problems lack an answer ({lacking} and 10 more, all in results.jsonl)"
    policy = tmp_path / "policy.yaml"
    policy.write_text("- {baseline: whole, dataset: contest, metric: accepted_at_1, maxRegression: '0.3'}\n")
    assert evalrun("gate", tmp_path / "whole", "--policy", policy).returncode == 0
    gated = evalrun("gate", tmp_path / "some", "--policy", policy)
    assert gated.returncode == 5, gated.stdout + gated.stderr
    assert "15 in the candidate" in gated.stdout


def test_excluded_problems_are_left_out_with_their_answers(tmp_path: Path) -> None:
    problems, responses = tmp_path / "problems.jsonl", tmp_path / "responses.jsonl"
    row = {"dataset": "contest", "prompt": "Print 1.", "ground_truth": {"inputs": [""], "outputs": ["1\n"]}}
    names = ("a", "weak", "c")
    problems.write_text("".join(json.dumps({**row, "problem_id": name}) + "\n" for name in names))
    responses.write_text(
        "".join(json.dumps({"problem_id": name, "response": "print(1)", "mode": "full"}) + "\n" for name in names)
    )
    files = ("--problems", problems, "--responses", responses)
    done = evalrun("judge", *files, "--exclude-problems", "weak", "--output", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [found["problem_id"] for found in results(tmp_path / "out")] == ["a", "c"]
    assert "1 problem is excluded" in done.stderr
    assert summary(tmp_path / "out")["partial"] == "contest: 1 problem is excluded (excludeProblems)"


def test_a_time_limit_may_be_a_fraction_of_a_second(tmp_path: Path) -> None:
    """2.5 s, a published limit, was refused, naming a field that the user never wrote."""
    problems, output = write_lines(tmp_path / "problems.jsonl", ADD), tmp_path / "out"
    answer = {"problem_id": "add", "response": RIGHT, "mode": "standalone"}
    responses = write_lines(tmp_path / "responses.jsonl", answer)
    done = evalrun("judge", "--problems", problems, "--responses", responses, "--output", output, "--time-limit", "2.5")
    assert done.returncode == 0, done.stdout + done.stderr
    info = json.loads((output / "run_info.json").read_text())
    assert info["spec"]["datasets"][0]["limits"] == {"timeMilliseconds": 2500}


def test_gzipped_published_file_is_read_and_judged(tmp_path: Path) -> None:
    task = {
        "task_id": "HumanEval/0",
        "prompt": "def double(x):\n",
        "entry_point": "double",
        "canonical_solution": "    return 2 * x\n",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n",
    }
    with gzip.open(tmp_path / "HumanEval.jsonl.gz", "wt") as file:
        file.write(json.dumps(task) + "\n")
    responses = write_lines(
        tmp_path / "r.jsonl", {"task_id": "HumanEval/0", "completion": "    return x + x\n", "mode": "append"}
    )
    problems = tmp_path / "HumanEval.jsonl.gz"
    done = evalrun("judge", "--problems", problems, "--responses", responses, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert verdicts(tmp_path / "out") == {("humaneval", "HumanEval/0", 0): "success"}


def test_ctrl_c_stops_cleanly_and_the_run_can_be_resumed(demo: Path, tmp_path: Path) -> None:
    run, output = run_of(quick_demo(tmp_path, problems=16)), tmp_path / "out"
    with evalrun_started(*run, "--output", output) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "judging" in line:
                break
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(60) == 130, rest
        assert f"evalrun resume {output}" in rest
    assert processes_with(str(output)) == []
    done = evalrun("resume", output, "--quiet", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"directory": str(output), **summary(output)}
    found = verdicts(output)
    assert len(found) == 16
    assert found.items() <= verdicts(demo).items()


def test_killed_command_leaves_no_process(tmp_path: Path) -> None:
    run, output = run_of(quick_demo(tmp_path, problems=16)), tmp_path / "out"
    with evalrun_started(*run, "--output", output) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "judging" in line:
                break
        assert child_running(process.pid, "evalrun_judge") is not None
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        while processes_with(str(output)):  # the kernel ends them one after the other
            pass


BAD_PROBLEMS: dict[str, tuple[list[Any], str]] = {
    "malformed line": ([ADD, "{not json"], r"problems.jsonl:2"),
    "no tests": ([{**ADD, "ground_truth": {"inputs": [], "outputs": []}}], r"problems.jsonl:1"),
    "unequal numbers": ([{**ADD, "ground_truth": {"inputs": ["1"], "outputs": []}}], r"problems.jsonl:1"),
    "twice the same": ([ADD, ADD], r"problems.jsonl:2"),
    "empty": ([], r"problems.jsonl"),
}
BAD_RESPONSES: dict[str, tuple[list[Any], str]] = {
    "malformed line": (["{"], r"responses.jsonl:1"),
    "unknown problem": ([{"problem_id": "subtract", "response": ""}], r"responses.jsonl:1"),
    "no text": ([{"problem_id": "add"}], r"responses.jsonl:1"),
    "the same sample twice": (
        [{"problem_id": "add", "sample": 0, "response": "1"}, {"problem_id": "add", "sample": 0, "response": "2"}],
        r"responses.jsonl:2",
    ),
    "unknown language": ([{"problem_id": "add", "response": "", "language": "cobol"}], r"responses.jsonl:1"),
}


BAD_CASES = [("problems", name) for name in BAD_PROBLEMS] + [("responses", name) for name in BAD_RESPONSES]


@pytest.mark.parametrize("case", BAD_CASES, ids=[f"{kind}: {name}" for kind, name in BAD_CASES])
def test_bad_input_is_named_in_one_line_before_anything_starts(
    evalrun_here: Command, case: tuple[str, str], tmp_path: Path
) -> None:
    kind, name = case
    rows, where = (BAD_PROBLEMS if kind == "problems" else BAD_RESPONSES)[name]
    problems = write_lines(tmp_path / "problems.jsonl", *(rows if kind == "problems" else [ADD]))
    answers = rows if kind == "responses" else [{"problem_id": "add", "response": RIGHT}]
    responses = write_lines(tmp_path / "responses.jsonl", *answers)
    done = evalrun_here("judge", "--problems", problems, "--responses", responses, "--output", tmp_path / "out")
    assert done.returncode == 2, done.stdout + done.stderr
    assert where in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not (tmp_path / "out").exists()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    problems, responses = tmp_path / "no.jsonl", tmp_path / "none.jsonl"
    done = evalrun("judge", "--problems", problems, "--responses", responses, "--output", tmp_path / "out")
    assert done.returncode == 2
    assert str(tmp_path / "no.jsonl") in done.stderr


def test_dataset_in_several_files_is_merged_and_a_conflict_is_refused(evalrun_here: Command, tmp_path: Path) -> None:
    more = {**ADD, "problem_id": "add more"}
    first = write_lines(tmp_path / "first.jsonl", ADD)
    second = write_lines(tmp_path / "second.jsonl", more, ADD)  # what is the same in both is there once
    other = write_lines(tmp_path / "other.jsonl", {**ADD, "ground_truth": {"inputs": ["1 1"], "outputs": ["3"]}})
    rows = [{"problem_id": name, "response": RIGHT} for name in ("add", "add more")]
    responses = write_lines(tmp_path / "responses.jsonl", *rows)
    files = ("--problems", first, "--problems", second, "--responses", responses)
    done = evalrun("judge", *files, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    found = {row["problem_id"]: row["final_status"] for row in results(tmp_path / "out")}
    assert found == {"add": "success", "add more": "success"}

    conflicting = evalrun_here("judge", *files, "--problems", other, "--output", tmp_path / "none")
    assert (conflicting.returncode, (tmp_path / "none").exists()) == (2, False)
    [line] = conflicting.stderr.strip().splitlines()
    assert f"--problems {other}: problem 'add' of dataset 'sums' is another one in --problems {first}" in line


def test_invalid_spec_is_refused_with_its_field_before_a_run_begins(evalrun_here: Command, tmp_path: Path) -> None:
    spec = tmp_path / "run.yaml"
    spec.write_text(DEMO.read_text().replace("spec:", "spec:\n  protocol: {samples: 4}", 1))
    for arguments in (("validate", spec), ("run", spec, "--local", "--output", tmp_path / "out")):
        done = evalrun_here(*arguments)
        assert done.returncode == 2, done.stdout
        assert f"{spec}: spec.protocol" in done.stderr
    assert not (tmp_path / "out").exists()


def test_rollout_without_gpus_is_refused_with_an_alternative(
    evalrun_here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi
    done = evalrun_here("run", DEMO.parent / "one-gpu-host.yaml", "--local", "--output", tmp_path / "out")
    assert done.returncode == 2
    assert "no GPU: nvidia-smi shows none on this machine" in done.stderr
    assert "--endpoint" in done.stderr


def test_a_dataset_in_a_clusters_volume_is_refused_on_one_machine(evalrun_here: Command, tmp_path: Path) -> None:
    done = evalrun_here("run", DEMO.parent / "evalrun-phase0.yaml", "--local", "--output", tmp_path / "out")
    assert done.returncode == 2
    assert (
        "spec.datasets[0].source: pvc://eval-data/humaneval/HumanEval.jsonl.gz is in a volume of a cluster"
        in done.stderr
    )
    assert not (tmp_path / "out").exists()


def test_an_unreachable_endpoint_is_named_and_blocks_no_corrected_command(tmp_path: Path) -> None:
    demo, output = quick_demo(tmp_path, problems=8), tmp_path / "out"
    done = evalrun("run", demo, "--local", "--endpoint", "http://127.0.0.1:9/v1", "--output", output)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "http://127.0.0.1:9" in done.stderr
    assert not output.exists()
    done = evalrun(*run_of(demo), "--output", output)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_unknown_dataset_is_named(evalrun_here: Command, tmp_path: Path) -> None:
    spec = tmp_path / "run.yaml"
    spec.write_text(DEMO.read_text().replace("source: builtin:demo", "source: nowhere.jsonl"))
    done = evalrun_here("run", spec, "--local", "--endpoint", "builtin:demo", "--output", tmp_path / "out")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "nowhere.jsonl" in done.stderr
    assert not (tmp_path / "out").exists()  # so that the corrected command can be run unchanged


@pytest.mark.parametrize("endpoint", ["localhost:8000/v1", "builtin:nothing"])
def test_invalid_endpoint_is_named_before_anything_starts(evalrun_here: Command, endpoint: str, tmp_path: Path) -> None:
    done = evalrun_here("run", DEMO, "--local", "--endpoint", endpoint, "--output", tmp_path / "out")
    assert done.returncode == 2, done.stdout + done.stderr
    assert endpoint in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "out").exists()


def test_help_of_each_command_is_longer_than_8_lines(evalrun_here: Command) -> None:
    for command in ("run", "judge", "rejudge", "validate", "serve"):
        done = evalrun_here(command, "--help")
        assert done.returncode == 0
        assert len(done.stdout.splitlines()) > 8, done.stdout
