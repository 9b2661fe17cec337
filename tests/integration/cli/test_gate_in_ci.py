"""Gates where CI systems look: the steps of action.yml in a shell of their own, JUnit's XML, and the comment."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import pytest
import yaml
from builders.command_line import DEMO
from builders.results.stored_runs import verdicts_of, write_run

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tools" / "comment_on_pull_request.py"


def run_step(directory: Path, step_id: str = "gate", **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run a step of the action as a runner would, on files of `directory`."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    step = next(each for each in action["runs"]["steps"] if each.get("id") == step_id)
    given = {name: str(value.get("default", "")) for name, value in action["inputs"].items()} | inputs
    named = {name: given[text.removeprefix("${{ inputs.").removesuffix(" }}")] for name, text in step["env"].items()}
    files = {name: str(directory / name.lower()) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step["run"]], cwd=directory,
        env={**os.environ, **named, **files, "RUNNER_TEMP": str(directory), "PATH": path},
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip


def write_runs(directory: Path, solved: int, margin: str) -> None:
    dev = {"humaneval": {"role": "dev"}}
    for name, count in (("main", 80), ("new", solved)):
        write_run(directory / name, verdicts_of([True] * count + [False] * (100 - count)), run=name, datasets=dev)
    gate = {"baseline": "main", "dataset": "humaneval", "maxRegression": margin}
    (directory / "policy.yaml").write_text(yaml.safe_dump([gate]))


@pytest.mark.parametrize(
    ("solved", "margin", "inconclusive", "code", "decision", "outcome"),
    [
        (80, "0.05", "fail", 0, "PASS", None),
        (50, "0.02", "pass", 1, "FAIL", "failure"),
        (80, "0", "fail", 1, "INCONCLUSIVE", "error"),
        (80, "0", "pass", 0, "INCONCLUSIVE", "error"),
    ],
)
def test_action_exit_code_and_outputs_follow_the_gate_decision(
    tmp_path: Path, solved: int, margin: str, inconclusive: str, code: int, decision: str, outcome: str | None
) -> None:
    write_runs(tmp_path, solved, margin)
    done = run_step(tmp_path, run="new", policy="policy.yaml", inconclusive=inconclusive)
    assert done.returncode == code, done.stderr
    assert (tmp_path / "github_output").read_text() == f"decision={decision}\n"
    assert f"**{decision}**" in (tmp_path / "github_step_summary").read_text()
    (suite,) = ElementTree.parse(tmp_path / "evalrun-gate.xml").getroot()
    (case,) = suite
    assert (case.get("classname"), case.get("name")) == ("humaneval", "accepted_at_1 against main")
    assert [each.tag for each in case] == ([] if outcome is None else [outcome])


def test_action_with_a_missing_run_fails_without_a_decision(tmp_path: Path) -> None:
    write_runs(tmp_path, 80, "0.05")
    done = run_step(tmp_path, run="absent", policy="policy.yaml", inconclusive="pass")
    assert done.returncode == 2
    assert "absent" in done.stderr
    assert not (tmp_path / "github_output").exists()


def test_action_input_is_never_executed(tmp_path: Path) -> None:
    write_runs(tmp_path, 80, "0.05")
    done = run_step(tmp_path, run='new"; touch broken; echo "', policy="policy.yaml")
    assert done.returncode == 2
    assert not (tmp_path / "broken").exists()


def test_rerun_of_recorded_answers_reuses_its_cache_and_refuses_other_answers(tmp_path: Path) -> None:
    problem = {"task_id": "t/0", "prompt": "def f(x):\n", "entry_point": "f", "canonical_solution": "    return x\n"}
    test = "def check(f):\n    assert f(1) == 1\n"
    (tmp_path / "problems.jsonl").write_text(json.dumps({**problem, "test": test}))
    (tmp_path / "answers.jsonl").write_text(json.dumps({"task_id": "t/0", "completion": "    return x\n"}))
    given = {"problems": "problems.jsonl", "responses": "answers.jsonl", "run": "outputs/new"}
    for _ in range(2):
        done = run_step(tmp_path, "evaluate", **given)
        assert done.returncode == 0, done.stderr
    (tmp_path / "answers.jsonl").write_text(json.dumps({"task_id": "t/0", "completion": "    return 2\n"}))
    done = run_step(tmp_path, "evaluate", **given)
    assert done.returncode == 2  # a cache of other answers decides nothing
    assert "its completions were made with another" in done.stderr


def test_rerun_of_an_evalrun_succeeds_from_its_cache(tmp_path: Path) -> None:
    given = {"evalrun": str(DEMO), "endpoint": "builtin:demo", "run": "outputs/new"}
    for _ in range(2):
        done = run_step(tmp_path, "evaluate", **given)
        assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "outputs" / "new" / "summary.json").read_text())["state"] == "Succeeded"


@pytest.mark.parametrize(
    ("inputs", "refusal"),
    [
        ({"problems": "p.jsonl", "run": "new"}, "problems, responses: name both, or evalrun"),
        ({"responses": "a.jsonl", "run": "new"}, "problems, responses: name both, or evalrun"),
        ({"responses": "a.jsonl", "evalrun": "run.yaml", "run": "new"}, "evalrun, problems: name one of them"),
        ({"evalrun": "run.yaml", "run": "s3://bucket/run"}, "is a URL"),
    ],
)
def test_unusable_inputs_of_evaluation_are_refused_before_any_decision(
    tmp_path: Path, inputs: dict[str, str], refusal: str
) -> None:
    done = run_step(tmp_path, "evaluate", **inputs)
    assert done.returncode == 2
    assert refusal in done.stderr


def test_the_comment_step_runs_the_script_on_the_table_of_the_gates() -> None:
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    assert f'"$GITHUB_ACTION_PATH/{SCRIPT.relative_to(ROOT)}"' in steps[-1]["run"]


class Comments:
    """GitHub's API of a pull request's comments, of which the first are another account's; a token may change them."""

    def __init__(self, *bodies: str, foreign: int = 0, refuses: bool = False) -> None:
        self.bodies = list(bodies)
        self.asked: list[tuple[str, str]] = []
        self._foreign, self._refuses = foreign, refuses

    def answer(self, method: str, path: str, content: dict[str, str]) -> tuple[int, object]:
        self.asked.append((method, path))
        if method == "GET":
            query = parse_qs(urlsplit(path).query)
            start = (int(query["page"][0]) - 1) * int(query["per_page"][0])
            rows = [
                {"id": number, "body": body, "user": {"login": "somebody" if number < self._foreign else "bot"}}
                for number, body in enumerate(self.bodies)
            ]
            return 200, rows[start : start + int(query["per_page"][0])]
        if self._refuses:
            return 403, {}
        if method == "PATCH":
            self.bodies[int(path.rpartition("/")[2])] = content["body"]
            return 200, {}
        self.bodies.append(content["body"])
        return 201, {}


@contextmanager
def served(comments: Comments) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
            status, answer = comments.answer(self.command, self.path, content)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_POST = do_GET  # noqa: N815 - the base's name
        do_PATCH = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def comment(directory: Path, api: str, text: str, **changes: str) -> str:
    """Call the script as the action does; returns what it says to the job."""
    (directory / "gate.md").write_text(text)
    environment = {
        "GITHUB_API_URL": api, "GITHUB_REPOSITORY": "owner/name", "GITHUB_TOKEN": "token", "COMMENT_ON": "7",
        "COMMENT_ID": "checks/gate", "COMMENT_AUTHOR": "bot", "COMMENT_FILE": str(directory / "gate.md"), **changes,
    }  # fmt: skip
    done = subprocess.run([sys.executable, SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


MARK = "<!-- evalrun gate: checks/gate -->"


def test_later_runs_update_the_same_comment(tmp_path: Path) -> None:
    comments = Comments(*[f"said by somebody {number}" for number in range(120)])
    with served(comments) as api:
        assert comment(tmp_path, api, "first") == ""
        assert comment(tmp_path, api, "second") == ""
        comment(tmp_path, api, "of another job", COMMENT_ID="checks/other-gate")
    assert comments.bodies[120:] == [f"{MARK}\nsecond", "<!-- evalrun gate: checks/other-gate -->\nof another job"]


def test_foreign_comment_with_the_gate_mark_is_left_unchanged(tmp_path: Path) -> None:
    comments = Comments(f"{MARK}\nnot ours", foreign=1)
    with served(comments) as api:
        comment(tmp_path, api, "ours")
        comment(tmp_path, api, "ours again")
    assert comments.bodies == [f"{MARK}\nnot ours", f"{MARK}\nours again"]


def test_comment_that_github_would_refuse_for_its_length_is_cut(tmp_path: Path) -> None:
    comments = Comments()
    with served(comments) as api:
        comment(tmp_path, api, "x" * 100_000)
    assert len(comments.bodies[0]) < 65_536
    assert comments.bodies[0].endswith("The rest is in the job's summary.")


def test_a_comment_that_cannot_be_written_is_a_warning_with_its_remedy(tmp_path: Path) -> None:
    with served(Comments(refuses=True)) as api:
        assert "pull-requests: write" in comment(tmp_path, api, "text")
        assert "no comment: FileNotFoundError" in comment(tmp_path, api, "text", COMMENT_FILE=str(tmp_path / "none"))
    assert "no comment: URLError" in comment(tmp_path, "http://127.0.0.1:1", "text")
    assert "not about a pull request" in comment(tmp_path, "http://127.0.0.1:1", "text", COMMENT_ON="")
