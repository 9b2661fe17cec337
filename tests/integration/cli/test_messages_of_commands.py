"""What a newcomer meets: a server that answers wrongly, a path that is not there, a Ctrl-C that comes early."""

import json
import re
import signal
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from builders.command_line import Command, evalrun, evalrun_started, processes_with, summary
from builders.generator.model_server import MODEL, Reply, completion, model_server

pytestmark = pytest.mark.timeout(600)  # some run the command twice, and other tests may take the CPUs

TESTS = {"inputs": ["1"], "outputs": ["1"]}
PROBLEMS = [
    {"dataset": "sums", "problem_id": name, "prompt": f"Add, {name}.", "ground_truth": TESTS} for name in ("a", "b")
]
RIGHT = completion("```python\nprint(input())\n```")
REFUSAL = Reply(400, {"error": {"message": "max_tokens is too large: 99999"}})


def written_run(directory: Path, **protocol: Any) -> Path:
    """Write a run and its problems; gives the run's file."""
    (directory / "problems.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in PROBLEMS))
    spec = {
        "model": {"path": MODEL},
        "datasets": [{"name": "sums", "source": "problems.jsonl"}],
        "endpoints": [{"url": "http://127.0.0.1:9/v1"}],
        "protocol": protocol,
    }
    manifest = {"apiVersion": "evalrun.dev/v1alpha1", "kind": "EvalRun", "metadata": {"name": "sums"}, "spec": spec}
    (directory / "run.yaml").write_text(json.dumps(manifest))
    return directory / "run.yaml"


def run(file: Path, endpoint: str, output: Path, *more: str | Path) -> subprocess.CompletedProcess[str]:
    return evalrun("run", file, "--local", "--endpoint", endpoint, *more, *(() if more else ("--output", output)))


def test_answers_without_any_text_are_warned_of_and_change_no_exit_code(tmp_path: Path) -> None:
    with model_server(completion(None)) as server:
        done = run(written_run(tmp_path), server.url, tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    [warning] = summary(tmp_path / "out")["warnings"]
    assert warning.startswith("sums: 2 of 2 answers hold no program (2 have no text at all")
    assert f"warning: {warning}" in done.stderr.splitlines()
    assert "2 of 2 answers hold no program" in (tmp_path / "out" / "report.html").read_text()


def test_a_server_without_a_list_of_models_is_used_with_a_warning(tmp_path: Path) -> None:
    with model_server(RIGHT, models=Reply(404, {"detail": "Not Found"})) as server:
        done = run(written_run(tmp_path), server.url, tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"warning: endpoint {server.url} does not list its models (HTTP 404" in done.stderr
    assert summary(tmp_path / "out")["counts"]["accepted"] == 2


def test_log_probs_of_a_server_are_in_the_results_and_shown(tmp_path: Path) -> None:
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in PROBLEMS))
    given = {"content": [{"token": "a", "logprob": -0.1234567891}, {"token": "b", "logprob": -2.0}]}
    choice = {"message": {"content": "print(input())"}, "finish_reason": "stop", "logprobs": given}
    with model_server(Reply(body={"model": MODEL, "choices": [choice]})) as server:
        done = evalrun(
            "run", "--endpoint", server.url, "--model", MODEL, "--dataset", tmp_path / "sums.jsonl",
            "--calculate-log-probs", "--output", tmp_path / "out",
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert {request["logprobs"] for request in server.requests} == {True}
    assert "log_probs is null" not in done.stderr
    for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines():
        assert json.loads(line)["log_probs"] == [-0.123457, -2.0]
    [row, _] = pq.read_table(tmp_path / "out" / "results.parquet").to_pylist()
    assert row["log_probs"] == pytest.approx([-0.123457, -2.0])
    assert "mean log-probability -1.062" in evalrun("show", tmp_path / "out", row["problem_id"]).stdout


def test_a_refused_key_ends_the_command_at_once(tmp_path: Path) -> None:
    with model_server(RIGHT, models=Reply(401, {"error": {"message": "wrong key"}})) as server:
        done = run(written_run(tmp_path), server.url, tmp_path / "out")
    assert done.returncode == 2
    said = f"evalrun: endpoint {server.url} refuses to list its models: HTTP 401: wrong key. Set the server's API key"
    assert done.stderr.splitlines()[-1] == f"{said} in EVALRUN_GENERATOR_API_KEY or OPENAI_API_KEY"


def test_permanent_error_ends_without_resume_advice_and_corrected_run_reuses_directory(
    tmp_path: Path,
) -> None:
    with model_server(REFUSAL) as server:
        done = run(written_run(tmp_path, maxNewTokens=99999), server.url, tmp_path / "out")
        assert done.returncode == 2, done.stdout + done.stderr
        assert "HTTP 400: max_tokens is too large: 99999" in done.stderr
        assert "resume" not in done.stdout + done.stderr
        assert len(server.requests) == 2  # each was asked once
        server.reply = RIGHT
        done = run(written_run(tmp_path, maxNewTokens=512), server.url, tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert server.requests[-1]["max_tokens"] == 512


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        (Reply(500, {"error": {"message": "CUDA out of memory"}}), "HTTP 500: CUDA out of memory; next try within"),
        (Reply(429, "slow down", {"Retry-After": "7"}), "HTTP 429: slow down; next try within 7 s"),
        (Reply(200, "<html>log in</html>"), "malformed answer: not JSON"),
    ],
    ids=["500", "429", "html"],
)
def test_generation_outage_cause_is_in_progress_line_and_log(reply: Reply, cause: str, tmp_path: Path) -> None:
    file, output = written_run(tmp_path), tmp_path / "out"
    with (
        model_server(reply) as server,
        evalrun_started("run", file, "--local", "--endpoint", server.url, "--output", output) as process,
    ):
        assert process.stdout is not None
        line = next(line for line in process.stdout if "no endpoint answers" in line)
        process.send_signal(signal.SIGINT)
        process.wait(60)
    assert f"no endpoint answers: {server.url}: " in line
    assert cause in line
    assert re.search(f"WARNING .*endpoint {server.url} is failing: ", (output / "logs" / "generator.log").read_text())


def test_a_dataset_that_is_not_there_is_named_before_anything_starts(evalrun_here: Command, tmp_path: Path) -> None:
    file = written_run(tmp_path)
    (tmp_path / "problems.jsonl").unlink()
    done = evalrun_here("run", file, "--local", "--endpoint", "http://127.0.0.1:9", "--output", tmp_path / "out")
    assert done.returncode == 2
    assert done.stdout == ""  # nothing was started
    assert done.stderr.startswith(f"evalrun: {file}: spec.datasets[0].source: problems.jsonl: no such file")


@pytest.mark.parametrize("presses", [1, 2])
def test_first_ctrl_c_names_the_wait_and_second_ends_at_once(presses: int, tmp_path: Path) -> None:
    """A hanging server: 20 s of silence, although it was pressed twice."""
    with model_server(Reply(200, RIGHT.body, delay_seconds=600.0 if presses == 2 else 3.0)) as server:
        command = ("run", written_run(tmp_path), "--local", "--endpoint", server.url, "--output", tmp_path / "out")
        with evalrun_started(*command) as process:
            assert process.stdout is not None
            while len(server.requests) < 2:
                time.sleep(0.01)
            pressed = time.monotonic()
            process.send_signal(signal.SIGINT)
            said = next(line for line in process.stdout if line.startswith("stopping"))
            answered = time.monotonic() - pressed
            assert re.match(r"stopping: .*requests?.* finished first, up to 60 s; press Ctrl-C again to stop now", said)
            if presses == 2:
                process.send_signal(signal.SIGINT)
            rest = process.stdout.read()
            ended = time.monotonic() - pressed
            assert process.wait(60) == 130, rest
    assert answered < 1.0  # 0.3 s on a machine of its own
    assert ended < (10.0 if presses == 1 else 5.0)
    assert "evalrun resume " in rest


def test_ctrl_c_while_the_services_start_ends_the_command_soon(tmp_path: Path) -> None:
    file, output = written_run(tmp_path), tmp_path / "out"
    with evalrun_started("run", file, "--local", "--endpoint", "http://127.0.0.1:9", "--output", output) as process:
        assert process.stdout is not None
        assert "results: " in process.stdout.readline()  # the first part is being started
        process.send_signal(signal.SIGINT)
        code, said = process.wait(60), process.stdout.read()
        assert code == 130, said
        assert "stopped before the run began" in said
    assert processes_with(str(output)) == []
    assert not output.exists()


def test_judged_answers_have_the_given_name_and_model_and_no_sampling(tmp_path: Path) -> None:
    written_run(tmp_path)
    (tmp_path / "answers.jsonl").write_text(
        "".join(f'{{"problem_id": "{name}", "response": "print(input())"}}\n' for name in "ab")
    )
    files = ("--problems", tmp_path / "problems.jsonl", "--responses", tmp_path / "answers.jsonl")
    for name, model in (("before", "org/one"), ("after", "org/two")):
        named = ("--name", name, "--model", model, "--output", tmp_path / name)
        done = evalrun("judge", *files, *named)
        assert done.returncode == 0, done.stdout + done.stderr
    report = (tmp_path / "before" / "report.html").read_text()
    assert "before" in report
    assert "org/one" in report
    assert "not known: the answers were made elsewhere" in report
    info = json.loads((tmp_path / "before" / "run_info.json").read_text())
    assert "protocol" not in info["spec"]
    assert info["seeds"]["first"] is None
    shown = evalrun("compare", tmp_path / "before", tmp_path / "after").stdout
    assert "before" in shown
    assert "org/two" in shown


def test_a_server_a_model_and_a_file_are_enough_to_run(tmp_path: Path) -> None:
    written_run(tmp_path)
    asked = ("--model", MODEL, "--dataset", tmp_path / "problems.jsonl", "--samples", "2", "--temperature", "0.5")
    with model_server(RIGHT) as server:
        done = evalrun("run", "--endpoint", server.url, *asked, "--output", tmp_path / "out")
        assert done.returncode == 0, done.stdout + done.stderr
        assert {request["temperature"] for request in server.requests} == {0.5}
        found = summary(tmp_path / "out")
        file = tmp_path / "out" / "evalrun.yaml"
        again = evalrun("run", file, "--local", "--endpoint", server.url, "--output", tmp_path / "again")
        assert again.returncode == 0, again.stdout + again.stderr
    assert summary(tmp_path / "again")["counts"] == found["counts"]
    assert (found["counts"]["samples"], found["datasets"]["sums"]["metrics"]["pass_at_2"]["value"]) == (4, 1.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name a FILE, or a server with --endpoint URL"),
        (("--endpoint", "http://a", "--model", "m", "--dataset", "none.jsonl"), "--dataset none.jsonl: no such file"),
        (("run.yaml", "--local", "--model", "m"), "--model: run.yaml sets this already"),
    ],
)
def test_unusable_run_flags_are_named_and_nothing_is_written(
    evalrun_here: Command, arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = evalrun_here("run", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


USES_PACKAGE = {
    "dataset": "sums",
    "problem_id": "package",
    "prompt": "Double.",
    "ground_truth": {
        "test_list": ["assert little.same(f(2), 4)"],
        "test_setup_code": "import little",
        "entry_point": "f",
    },
}


def test_packages_directory_is_importable_by_answers_and_tests(tmp_path: Path) -> None:
    (tmp_path / "problems.jsonl").write_text(json.dumps(USES_PACKAGE) + "\n")
    answer = "import little\ndef f(x):\n    assert little.same(x, x)\n    return 2 * x\n"
    (tmp_path / "answers.jsonl").write_text(json.dumps({"problem_id": "package", "response": answer}) + "\n")
    files = ("--problems", tmp_path / "problems.jsonl", "--responses", tmp_path / "answers.jsonl")
    with TemporaryDirectory(
        prefix="packages-"
    ) as packages:  # pytest's own directories are closed to the sandbox's user
        Path(packages).chmod(0o755)
        (Path(packages) / "little").mkdir()
        (Path(packages) / "little" / "__init__.py").write_text("def same(a, b):\n    return a == b\n")
        done = evalrun("judge", *files, "--packages", packages, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert summary(tmp_path / "out")["counts"]["accepted"] == 1


def test_a_directory_of_packages_that_is_not_there_is_named_before_anything_starts(
    evalrun_here: Command, tmp_path: Path
) -> None:
    written_run(tmp_path)
    (tmp_path / "answers.jsonl").write_text('{"problem_id": "a", "response": "print(input())"}\n')
    files = ("--problems", tmp_path / "problems.jsonl", "--responses", tmp_path / "answers.jsonl")
    done = evalrun_here("judge", *files, "--packages", tmp_path / "none", "--output", tmp_path / "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--packages {tmp_path / 'none'}: no such directory" in done.stderr


def test_problem_whose_test_lacks_a_module_is_named_and_blocks_no_other(tmp_path: Path) -> None:
    written_run(tmp_path)
    lacking = {
        "test_list": ["assert np.allclose(f(2), 4)"],
        "test_setup_code": "import no_such as np",
        "entry_point": "f",
    }
    problem = {"dataset": "sums", "problem_id": "lacking", "prompt": "Double.", "ground_truth": lacking}
    with (tmp_path / "problems.jsonl").open("a") as problems:
        problems.write(json.dumps(problem) + "\n")
    answers = [
        {"problem_id": "a", "response": "print(input())"},
        {"problem_id": "b", "response": "print(input())"},
        {"problem_id": "lacking", "response": "def f(x): pass"},
    ]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    files = ("--problems", tmp_path / "problems.jsonl", "--responses", tmp_path / "answers.jsonl")
    done = evalrun("judge", *files, "--output", tmp_path / "out")
    assert done.returncode == 3, done.stdout + done.stderr
    said = "warning: sums lacking cannot be judged: the test itself fails: ModuleNotFoundError: No module named"
    assert f"{said} 'no_such'. Data error: " in done.stderr
    found = summary(tmp_path / "out")
    assert found["datasets"]["sums"]["metrics"]["accepted_at_1"]["value"] == 1.0  # of those that were judged
    assert (found["counts"]["judged"], found["counts"]["not_judged"]) == (2, 1)


def test_misspelt_dataset_is_refused_with_a_suggested_name() -> None:
    done = evalrun("run", "--endpoint", "builtin:demo", "--model", MODEL, "--dataset", "humanevl")
    assert done.returncode == 2
    assert "--dataset humanevl: no such file, nor one of the published datasets" in done.stderr
    assert done.stderr.rstrip().endswith("did you mean humaneval?")
