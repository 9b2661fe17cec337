"""`evalrun publish`: what is printed is what is written and what is sent."""

import base64
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.command_line import COMMAND, DEMO, evalrun

HUB = ("--hub-dataset", "demo=org/bench:main")
EEE = ("--organization", "an evaluator", "--relationship", "third_party")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the demo."""
    output = tmp_path_factory.mktemp("published") / "out"
    done = evalrun("run", DEMO, "--local", "--endpoint", "builtin:demo", "--output", output)
    assert done.returncode == 0, done.stderr
    return output


class _Commits(BaseHTTPRequestHandler):
    """What the hub answers to a commit with a pull request."""

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if "/preupload/" in self.path:
            answer: dict[str, Any] = {
                "files": [
                    {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                    for each in json.loads(content)["files"]
                ]
            }
        else:
            self.server.commits.append((self.path, content))  # type: ignore[attr-defined] # of the test's server
            address = f"http://{self.headers['Host']}/org/model"
            answer = {
                "commitUrl": f"{address}/commit/abc", "commitOid": "abc", "pullRequestUrl": f"{address}/discussions/7",
            }  # fmt: skip
        body = json.dumps(answer).encode()
        self.send_response(self.server.status)  # type: ignore[attr-defined] # see above
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@contextmanager
def hub_that_answers(status: int) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Commits)
    commits: list[tuple[str, bytes]] = []
    server.status = status  # type: ignore[attr-defined] # see above
    server.commits = commits  # type: ignore[attr-defined] # see above
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", commits
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def send(run: Path, endpoint: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_TOKEN": "hf_test"}
    command = [*COMMAND, "publish", "hub", str(run), *HUB, "--send", "--model-id", "org/model"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)


def test_printed_publication_equals_written_and_sent(run: Path, tmp_path: Path) -> None:
    printed = evalrun("publish", "hub", run, *HUB)
    assert printed.returncode == 0, printed.stderr
    name, _, content = printed.stdout.partition("\n")
    assert name == "# .eval_results/demo.yaml"

    written = evalrun("publish", "hub", run, *HUB, "--output", tmp_path)
    assert written.returncode == 0, written.stderr
    file = tmp_path / ".eval_results" / "demo.yaml"
    assert file.read_text().strip() == content.strip()
    assert yaml.safe_load(file.read_text())[0]["value"] == 40.62
    assert "| demo | pass@1 | 40.62 % |" in (tmp_path / "model_card.md").read_text()

    with hub_that_answers(200) as (address, commits):
        sent = send(run, address)
        assert sent.returncode == 0, sent.stderr
        assert sent.stdout.strip() == f"{address}/org/model/discussions/7"
    ((path, body),) = commits
    assert path.startswith("/api/models/org/model/commit/main")
    assert "create_pr=1" in path
    (added,) = [json.loads(line)["value"] for line in body.splitlines() if json.loads(line)["key"] == "file"]
    assert added["path"] == ".eval_results/demo.yaml"
    assert base64.b64decode(added["content"]) == file.read_bytes()


def test_record_of_every_eval_ever_names_the_public_model(run: Path) -> None:
    done = evalrun("publish", "eee", run, *EEE, "--model-id", "org/model")
    assert done.returncode == 0, done.stderr
    name, _, content = done.stdout.partition("\n")
    assert name.startswith("# data/demo/org/model/")
    assert json.loads(content)["model_info"]["id"] == "org/model"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("hub",), "demo: which benchmark of the hub is it? --hub-dataset demo=ORGANIZATION/DATASET:TASK"),
        (("hub", "--hub-dataset", "demo"), "--hub-dataset demo: write NAME=ORGANIZATION/DATASET:TASK"),
        (("eee", *EEE, "--model-id", "/models/mine"), "name it as the public knows it: --model-id DEVELOPER/MODEL"),
    ],
)
def test_publication_without_a_needed_option_names_the_option(run: Path, arguments: tuple[str, ...], said: str) -> None:
    done = evalrun("publish", arguments[0], run, *arguments[1:])
    assert done.returncode == 2
    assert said in done.stderr


def test_refusal_of_the_hub_names_the_remedy(run: Path) -> None:
    with hub_that_answers(403) as (address, _):
        done = send(run, address)
    assert done.returncode == 2
    assert "org/model: " in done.stderr
    assert "are you logged in (hf auth login, or HF_TOKEN)?" in done.stderr
    assert "hf_test" not in done.stderr
