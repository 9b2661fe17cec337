"""The pair judge over HTTP: a real server that answers, refuses, is silent or ends in the middle."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders.command_line import evalrun
from builders.generator.model_server import MODEL, Reply, completion, model_server
from builders.governance import prepared, write_plan, write_rows
from builders.tiny_embedder import write_tiny_embedder

from evalrun_cli.pair_judge import FIRST_QUESTION, EndpointPairJudge
from evalrun_data.governance.meaning.pair_judge import JudgedPairs, PairAnswer, Question
from evalrun_generator.endpoints.retry import Backoff
from evalrun_runtime.exits import BadInputError

AT_ONCE = Backoff(first=0.0, max_wait=0.0)
SAME = completion('{"answer": "same"}')
QUESTIONS = [Question(f"sum {number}", "total") for number in range(20)]


def judge(url: str) -> EndpointPairJudge:
    return EndpointPairJudge(url, MODEL, "key", backoff=AT_ONCE)


def ask(url: str, report: Callable[[int], None] = print) -> JudgedPairs:
    return judge(url).judge(QUESTIONS, report)


def test_every_question_gets_its_answer_in_order() -> None:
    reported: list[int] = []
    with model_server(SAME) as server:
        judged = ask(server.url, reported.append)
    assert judged == JudgedPairs([PairAnswer.SAME] * 20)
    assert sorted(reported) == list(range(1, 21))
    assert len(server.requests) == 20


@pytest.mark.parametrize("reply", [completion("I cannot say."), completion(None), Reply(400, '{"error": "too long"}')])
def test_question_without_a_readable_answer_is_undecided(reply: Reply) -> None:
    with model_server(reply) as server:
        judged = ask(server.url)
    assert (judged.answers, judged.outage) == ([PairAnswer.UNDECIDED] * 20, "")
    assert ("too long" in judged.refusal) == (reply.status == 400)


@pytest.mark.parametrize(
    ("reply", "what"),
    [
        (Reply(401, '{"error": "no such key"}'), "HTTP 401: no such key. Set the server's API key in"),
        (Reply(500, "broken"), "HTTP 500: broken"),
        (Reply(200, "no JSON"), "malformed answer"),
        (Reply(429, "later", {"Retry-After": "0"}), "HTTP 429: later"),
    ],
)
def test_endpoint_that_fails_for_good_is_an_outage_and_no_answer(reply: Reply, what: str) -> None:
    with model_server(reply) as server:
        judged = ask(server.url)
    assert what in judged.outage
    assert server.url in judged.outage
    assert judged.answers == [None] * 20


def test_outage_in_the_middle_keeps_earlier_answers() -> None:
    with model_server(SAME) as server:

        def fail_after_ten(done: int) -> None:
            if done == 10:
                server.reply = Reply(503, "gone", {"Retry-After": "0"})

        judged = ask(server.url, fail_after_ten)
    assert "HTTP 503: gone" in judged.outage
    assert 10 <= judged.answers.count(PairAnswer.SAME) < 20
    assert set(judged.answers) == {PairAnswer.SAME, None}


def test_first_question_is_timed_and_an_unusable_judge_is_refused() -> None:
    with model_server(SAME) as server:
        usable = judge(server.url)
        usable.try_question()
        assert usable.seconds_per_pair > 0
        assert FIRST_QUESTION.first in server.requests[0]["messages"][1]["content"]
        server.reply = completion("Hello! How can I help?")
        with pytest.raises(BadInputError, match="neither of the two words"):
            usable.try_question()
        server.reply = Reply(400, "response_format is not supported")
        with pytest.raises(BadInputError, match=r"was refused: .*response_format is not supported"):
            usable.try_question()
    with pytest.raises(BadInputError, match=r"--pair-judge: http.*Connection refused"):
        usable.try_question()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    leak = {"id": "leak", "text": "sorted sum liste words"}
    bench = {"problem_id": "sum", "prompt": "sum list numbers", "ground_truth": {"inputs": ["1"], "outputs": ["1"]}}
    write_rows(tmp_path / "train.jsonl", [leak])
    write_rows(tmp_path / "bench.jsonl", [bench])
    datasets = [
        {"name": "train", "source": "train.jsonl", "role": "train"},
        {"name": "bench", "source": "bench.jsonl", "role": "test"},
    ]
    prepared(write_plan(tmp_path, datasets), tmp_path / "out")
    return tmp_path / "out"


def audit_of(data: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((data / "data_manifests/audit.json").read_text())
    return content


def test_command_asks_the_judge_about_pairs_that_the_embedder_leaves_open(data: Path, tmp_path: Path) -> None:
    model = write_tiny_embedder(tmp_path / "model")
    with model_server(SAME) as server:
        options = ("--embedder", model, "--pair-judge", f"{server.url}/v1", "--pair-judge-model", MODEL)
        done = evalrun("data", "audit", data, *options, "--judge-min-cosine", "0.5")
    assert done.returncode == 1, done.stderr
    assert "pair judge: 1 pairs are near enough, 1 are asked about" in done.stderr
    assert "overlap (meaning, 0.58, judge): train/leak and bench/sum" in done.stderr
    assert [each["found_by"] for each in audit_of(data)["overlaps"]] == ["judge"]


def test_command_refuses_a_judge_that_is_not_there_before_anything_is_compared(data: Path, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    before = audit_of(data)
    model = write_tiny_embedder(tmp_path / "model")
    judge = EndpointPairJudge(url, MODEL, None, backoff=AT_ONCE)
    with pytest.raises(BadInputError, match="Connection refused"):
        judge.try_question()
    done = evalrun("data", "audit", data, "--embedder", model, "--pair-judge", "no url", "--pair-judge-model", MODEL)
    assert done.returncode == 2
    assert "--pair-judge: endpoint 'no url' is not a URL" in done.stderr
    assert audit_of(data) == before


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--min-cosine", "0.7"), "--min-cosine: needs --embedder"),
        (("--pair-judge", "http://127.0.0.1:1"), "--pair-judge: needs --embedder"),
        (("--embedder", "m", "--pair-judge", "http://127.0.0.1:1"), "--pair-judge: needs --pair-judge-model"),
        (("--embedder", "m", "--max-judged-pairs", "5"), "--max-judged-pairs: needs --pair-judge"),
        (("--embedder", "m"), "--embedder m: has no model.onnx"),
    ],
)
def test_command_refuses_flags_that_do_not_go_together(data: Path, options: tuple[str, ...], what: str) -> None:
    done = evalrun("data", "audit", data, *options)
    assert done.returncode == 2
    assert what in done.stderr
