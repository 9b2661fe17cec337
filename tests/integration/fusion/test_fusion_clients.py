"""SandboxFusion's published client, every function of it, against a real sandbox process.

Not compared here: the stock server's own answers, which need its image.
"""

import base64
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
import sandbox_fusion as client
from builders.fusion.clients import ADD, STDIO_ROW, TEST_SECONDS, VerlClient, fenced, sandbox

RunCode = client.RunCodeRequest
MBPP: dict[str, Any] = {
    "id": 11, "content": "Add one.", "labels": {"test_setup_code": ""},
    "test_list": ["assert f(1) == 2", "assert f(2) == 3"],
}  # fmt: skip
HUMANEVAL: dict[str, Any] = {
    "task_id": "HumanEval/x", "prompt": "def f(x):\n", "entry_point": "f",
    "test": "def check(candidate):\n    assert candidate(1) == 2\n",
}  # fmt: skip


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("rows")
    rows: dict[str, list[dict[str, Any]]] = {
        "code_eval_mbpp.jsonl": [MBPP, {**MBPP, "id": 9}],
        "humaneval_python.jsonl": [HUMANEVAL],
    }
    for name, lines in rows.items():
        (directory / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    with sandbox("--fusion-datasets", directory, "--slots", "2") as address:
        yield address


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    """A sandbox as it starts in a pod: nothing turned on."""
    with sandbox("--slots", "1") as address:
        yield address


def run(endpoint: str, code: str, language: str = "python", **fields: Any) -> client.RunCodeResponse:
    request = RunCode(code=code, language=language, **fields)
    return client.run_code(request, endpoint=endpoint, max_attempts=1, client_timeout=TEST_SECONDS)


def has_cpp(endpoint: str) -> bool:
    return "cpp" in requests.get(f"{endpoint}/v1/info", timeout=TEST_SECONDS).json()["languages"]


def submit(endpoint: str, dataset: str, completion: str, row: Any, **config: Any) -> client.EvalResult:
    asked = client.SubmitRequest(
        dataset=dataset, id=7, completion=completion, config=client.TestConfig(provided_data=row, **config)
    )
    return client.submit(asked, endpoint=endpoint, max_attempts=1, client_timeout=TEST_SECONDS)


def test_ping_answers_like_the_stock_server(endpoint: str) -> None:
    answer = requests.get(f"{endpoint}/v1/ping", timeout=TEST_SECONDS)
    assert (answer.status_code, answer.text) == (200, '"pong"')
    assert answer.headers["Content-Type"].startswith("application/json")


@pytest.mark.parametrize(
    ("code", "status", "run_status", "return_code", "stdout"),
    [
        ("print(input())", "Success", "Finished", 0, "é 1\n"),
        ("print(1)\nraise SystemExit(3)", "Failed", "Finished", 3, "1\n"),
        ("import os\nos.abort()", "Failed", "Finished", -6, ""),
        ("print(", "Failed", "Finished", 1, ""),
        ("print(1, flush=True)\nwhile True: pass", "Failed", "TimeLimitExceeded", None, "1\n"),
        ("", "Success", "Finished", 0, ""),
        ("x = bytearray(1 << 31)", "Failed", "Finished", 1, ""),
    ],
)
def test_python_program_gets_its_status_and_output(
    endpoint: str, code: str, status: str, run_status: str, return_code: int | None, stdout: str
) -> None:
    answer = run(endpoint, code, stdin="é 1\n", run_timeout=0.5)
    assert answer.run_result is not None
    assert (answer.status, answer.message, answer.compile_result) == (status, "", None)
    assert (answer.run_result.status, answer.run_result.return_code) == (run_status, return_code)
    assert answer.run_result.stdout == stdout


def test_output_that_the_stock_server_cuts_or_hangs_on_comes_whole(endpoint: str) -> None:
    answer = run(endpoint, "print('x' * 500_000)")
    assert answer.run_result is not None
    assert (answer.status, len(answer.run_result.stdout)) == ("Success", 500_001)
    over = run(endpoint, "print('x' * 70_000_000)")
    assert over.run_result is not None
    assert (over.status, over.run_result.status, over.run_result.return_code) == ("Failed", "Finished", -25)
    assert "more output than it keeps" in over.run_result.stderr


@pytest.mark.parametrize("size", [5, 3_000_000])
def test_given_files_are_placed_and_fetched_files_returned(endpoint: str, size: int) -> None:
    given = (bytes(range(256)) * (size // 256 + 1))[:size]
    answer = run(
        endpoint, "data = open('d/in', 'rb').read()\nopen('out', 'wb').write(data[::-1])\nprint(len(data))",
        files={"d/in": base64.b64encode(given).decode()}, fetch_files=["out", "none", "d/in"],
    )  # fmt: skip
    assert (answer.status, answer.run_result.stdout) == ("Success", f"{size}\n")
    assert {name: base64.b64decode(text) for name, text in answer.files.items()} == {"out": given[::-1], "d/in": given}


def test_large_invalid_body_is_refused_with_the_reason(endpoint: str) -> None:
    body = b'{"language": "python", "code": "' + b" " * 2_000_000
    answer = requests.post(f"{endpoint}/run_code", data=body, timeout=TEST_SECONDS)
    assert (answer.status_code, answer.json()["detail"][0]["type"]) == (422, "json_invalid")
    with pytest.raises(Exception, match=r"code 400: .*leaves the program's private directory"):
        run(endpoint, " " * 2_000_000, files={"../x": ""})


def test_files_of_one_program_are_gone_for_the_next(plain: str) -> None:
    run(plain, "open('left', 'w').write('1')", files={"given": "YQ=="}, fetch_files=["left"])
    answer = run(plain, "import os\nprint(os.listdir('.'))", fetch_files=["left", "given"])
    assert (answer.run_result.stdout, answer.files) == ("['tmp_main.py']\n", {})


def test_repeated_run_finds_the_given_files_unchanged(plain: str) -> None:
    code = "open('seen', 'a').write('x')\nimport time\nwhile time.process_time() < 0.43: pass"
    answer = run(plain, code, run_timeout=0.4, files={"seen": base64.b64encode(b"x").decode()}, fetch_files=["seen"])
    # A machine that is slow at that moment gives the repeated run more time: what it shows are that run's files.
    assert (answer.status, answer.run_result.status) in {("Failed", "TimeLimitExceeded"), ("Success", "Finished")}
    assert base64.b64decode(answer.files["seen"]) == b"xx"


def test_cpp_program_with_900_files_compiles(endpoint: str) -> None:
    if not has_cpp(endpoint):
        pytest.skip("no C++ compiler on this machine")
    code = '#include <fstream>\n#include "899.h"\nint main(){std::ofstream("out") << X;}'
    files = {f"{n}.h": base64.b64encode(f"#define X {n}".encode()).decode() for n in range(900)}
    answer = run(endpoint, code, "cpp", files=files, fetch_files=["out"])
    assert (answer.status, answer.files) == ("Success", {"out": base64.b64encode(b"899").decode()})


def test_program_with_fetched_files_beyond_the_limit_fails(endpoint: str) -> None:
    code = "for name in 'ab':\n    f = open(name, 'wb')\n    f.truncate(33 << 20)"
    answer = run(endpoint, code, fetch_files=["a", "b"])
    assert (answer.status, answer.run_result.return_code, answer.files) == ("Failed", -25, {})
    assert "64 MiB" in answer.run_result.stderr


def test_fetched_files_cannot_lie_outside_of_the_directory(endpoint: str, tmp_path: Path) -> None:
    """Through links, where the machine lets a program make them; full containment refuses them anyway."""
    (tmp_path / "secret").write_text("host's")
    code = f"""
import os
for source, link in (("{tmp_path}/secret", "file"), ("{tmp_path}", "directory"), ("/etc/hostname", "name")):
    try:
        os.symlink(source, link)
    except OSError as error:
        print(error.errno)
"""
    answer = run(endpoint, code, fetch_files=["file", "directory/secret", "name"])
    assert (answer.status, answer.files) == ("Success", {})


def test_cpp_program_runs_and_a_compile_error_is_reported(endpoint: str) -> None:
    if not has_cpp(endpoint):
        pytest.skip("no C++ compiler on this machine")
    good = run(endpoint, "#include <iostream>\nint main(){int a;std::cin>>a;std::cout<<a+1;}", "cpp", stdin="4")
    assert (good.status, good.compile_result.return_code, good.run_result.stdout) == ("Success", 0, "5")
    bad = run(endpoint, "int main(){return 3}", "cpp")
    assert (bad.status, bad.compile_result.return_code, bad.run_result) == ("Failed", 1, None)
    mapping = client.SummaryMapping(CompileFailed="compile", RunFailed="run")
    assert client.summary_run_code_result(bad, mapping) == "compile"


def test_unrunnable_request_raises_in_the_client(endpoint: str) -> None:
    with pytest.raises(Exception, match="Sandbox responded with error: language csharp is not one of"):
        run(endpoint, "class A {}", "csharp")
    with pytest.raises(Exception, match=r"code 400: .*leaves the program's private directory"):
        run(endpoint, "", files={"../../etc/x": "YQ=="})
    with pytest.raises(Exception, match=r"code 400: .*leaves the program's private directory"):
        run(endpoint, "", fetch_files=["/etc/hostname"])
    with pytest.raises(Exception, match=r"code 501: .*run_jupyter is not served"):
        client.run_jupyter(client.RunJupyterRequest(cells=["1"]), endpoint=endpoint, max_attempts=1)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"{}", ["missing", ["body", "code"]]),
        (b'{"code": "", "language": "cobol"}', ["literal_error", ["body", "language"]]),
        (b'{"code": "", "language": "python", "run_timeout": "soon"}', ["float_parsing", ["body", "run_timeout"]]),
        (b"{", ["json_invalid", ["body", 1]]),
    ],
)
def test_bad_body_is_422_with_the_error_list_of_fastapi(endpoint: str, body: bytes, complaint: list[Any]) -> None:
    answer = requests.post(f"{endpoint}/run_code", data=body, timeout=TEST_SECONDS)
    first = answer.json()["detail"][0]
    assert (answer.status_code, [first["type"], first["loc"]]) == (422, complaint)


@pytest.mark.parametrize(
    ("code", "tests", "accepted"),
    [(ADD, 5, True), ("print(0)", 2, False), ("raise ValueError", 1, False), ("while True: pass", 1, False)],
)
def test_submit_judges_stdio(endpoint: str, code: str, tests: int, accepted: bool) -> None:
    result = submit(
        endpoint, "mine", fenced(code), STDIO_ROW, language="python", dataset_type="CommonOJDataset", run_timeout=0.5
    )
    assert (result.id, result.accepted, result.extracted_code, len(result.tests)) == (7, accepted, code, tests)
    assert result.tests[-1].passed is accepted
    assert result.tests[0].test_info == STDIO_ROW["test"][0]


@pytest.mark.parametrize(("body", "accepted"), [("return x + 1", True), ("return 2", False), ("import os", False)])
def test_submit_judges_functions(endpoint: str, body: str, accepted: bool) -> None:
    mbpp = submit(endpoint, "mbpp", fenced(f"def f(x):\n    {body}"), MBPP)
    assert mbpp.accepted is accepted
    humaneval = submit(endpoint, "humaneval_python", f"    {body}\n\nprint(1)", HUMANEVAL)
    assert humaneval.accepted is (accepted or body == "return 2")
    assert humaneval.full_code.endswith("\ncheck(f)")


def test_dangerous_submission_is_refused(endpoint: str) -> None:
    for dataset, config, complaint in (
        ("mbpp", {"custom_extract_logic": "import os"}, "custom_extract_logic is refused"),
        ("mine", {}, "no eval class found"),
        ("mine", {"dataset_type": "HumanEvalDataset"}, "never be called"),
        ("mine", {"dataset_type": "LiveCodeBenchDataset"}, "not found"),
    ):
        with pytest.raises(Exception, match=f"code 400: .*{complaint}"):
            submit(endpoint, dataset, "", HUMANEVAL, **config)
    safe = client.submit_safe(
        client.SubmitRequest(dataset="mine", id=7, completion="", config=client.TestConfig()),
        endpoint=endpoint, max_attempts=1,
    )  # fmt: skip
    assert (safe.accepted, safe.tests) == (False, [])


def test_prompts_come_from_the_directory_and_from_the_request(endpoint: str) -> None:
    nothing = client.TestConfig()
    shown = client.get_prompts(client.GetPromptsRequest(dataset="mbpp", config=nothing), endpoint=endpoint)
    assert [prompt.id for prompt in shown] == [9, 11]
    one = client.get_prompt_by_id(
        client.GetPromptByIdRequest(dataset="mbpp", config=nothing, id=11), endpoint=endpoint
    )  # fmt: skip
    assert one.prompt == shown[1].prompt
    assert "assert f(2) == 3" in one.prompt
    config = client.TestConfig(provided_data=[STDIO_ROW], language="python")
    brought = client.get_prompts(client.GetPromptsRequest(dataset="code_contests", config=config), endpoint=endpoint)
    assert [(prompt.id, prompt.labels) for prompt in brought] == [(7, {"level": "easy"})]


def test_the_other_dataset_routes_answer(endpoint: str) -> None:
    asked: dict[str, Any] = {"dataset": "mbpp", "config": {}}
    assert requests.get(f"{endpoint}/list_datasets", timeout=TEST_SECONDS).json() == ["humaneval_python", "mbpp"]
    for path, body, answer in (
        ("list_ids", asked, [9, 11]),
        ("list_ids", {**asked, "offset": 1}, [11]),
        ("get_metrics", {**asked, "results": []}, {}),
        ("get_metrics_function", asked, {"function": None}),
    ):
        assert requests.post(f"{endpoint}/{path}", json=body, timeout=TEST_SECONDS).json() == answer
    unknown = requests.post(
        f"{endpoint}/get_prompt_by_id", json={**asked, "id": "x' OR id=11 --"}, timeout=TEST_SECONDS
    )
    assert unknown.status_code == 404


def test_the_dataset_routes_are_off_unless_asked_for(plain: str) -> None:
    assert requests.get(f"{plain}/list_datasets", timeout=TEST_SECONDS).status_code == 404
    for path in ("submit", "get_prompts", "get_prompt_by_id", "list_ids", "get_metrics", "get_metrics_function"):
        answer = requests.post(f"{plain}/{path}", json={}, timeout=TEST_SECONDS)
        assert answer.status_code == 404
        assert "--fusion-datasets" in answer.json()["detail"]
    assert run(plain, "print(1)").status == "Success"


def test_many_concurrent_programs_wait_and_none_times_out(endpoint: str) -> None:
    """The stock server turns this load into 24 timeouts of 24: its limits are wall time and it has no queue."""
    busy = "import time\nt = time.process_time()\nwhile time.process_time() < t + 0.2: pass\nprint(input())"
    requests_ = [[RunCode(code=busy, language="python", stdin=str(n), run_timeout=1)] for n in range(24)]
    found = client.run_concurrent(
        client.run_code, requests_, [{"endpoint": endpoint, "client_timeout": TEST_SECONDS}] * 24, concurrency=24
    )
    assert [(answer.status, answer.run_result.stdout) for answer in found] == [("Success", f"{n}\n") for n in range(24)]


async def test_the_asynchronous_client_works(endpoint: str) -> None:
    answer = await client.run_code_async(RunCode(code="print(1)", language="python"), endpoint=endpoint)
    assert (answer.status, answer.run_result.stdout) == ("Success", "1\n")
    config = client.TestConfig(provided_data=MBPP)
    asked = client.SubmitRequest(dataset="mbpp", id=11, completion=fenced("f = int(1).__add__"), config=config)
    assert (await client.submit_async(asked, endpoint=endpoint, max_attempts=1)).accepted
    assert (await client.submit_safe_async(asked, endpoint=endpoint, max_attempts=1)).accepted
    by_id = client.GetPromptByIdRequest(dataset="mbpp", config=config, id=11)
    assert (await client.get_prompt_by_id_async(by_id, endpoint=endpoint)).id == 11
    several = client.GetPromptsRequest(dataset="mbpp", config=client.TestConfig())
    assert len(await client.get_prompts_async(several, endpoint=endpoint)) == 2
    with pytest.raises(Exception, match="code 501"):
        await client.run_jupyter_async(client.RunJupyterRequest(cells=["1"]), endpoint=endpoint, max_attempts=1)


@pytest.mark.parametrize(
    ("code", "expected", "grade"),
    [
        ("print(input())", "7", True),
        ("print(8)", "7", False),
        ("print(7, end='')", "7\n", True),
        ("print(7)", None, True),
        ("1 / 0", "7", -2),
        ("x =", "7", -2),
        ("while True: pass", "7", -3),
        ("import time\ntime.sleep(60)", "7", -3),
    ],
)
def test_verl_client_computes_the_expected_grade(
    endpoint: str, code: str, expected: str | None, grade: bool | int
) -> None:
    verl = VerlClient(f"{endpoint}/run_code", margin_seconds=TEST_SECONDS)
    assert verl.grade(code, "7", expected, timeout=0.5) is grade


def test_verl_may_send_no_memory_limit(endpoint: str) -> None:
    answer = VerlClient(f"{endpoint}/run_code").call("print(1)", None, memory_limit_mb=None)
    assert answer is not None
    assert answer["status"] == "Success"


def test_a_client_that_leaves_frees_the_slot(plain: str) -> None:
    host, port = plain.removeprefix("http://").split(":")
    body = json.dumps({"code": "while True: pass", "language": "python", "run_timeout": 1000}).encode()
    head = f"POST /run_code HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head + body)
        deadline = time.monotonic() + 60
        while 'slots{state="busy"} 1.0' not in requests.get(f"{plain}/metrics", timeout=TEST_SECONDS).text:
            assert time.monotonic() < deadline, "the program never started"
    assert run(plain, "print(1)", run_timeout=1).status == "Success"


def test_clients_send_a_token_as_the_addresss_password(tmp_path: Path) -> None:
    with sandbox("--fusion-datasets", tmp_path, environment={"EVALRUN_SANDBOX_TOKEN": "s3cret"}) as address:
        with pytest.raises(Exception, match="code 401"):
            run(address, "print(1)")
        host = address.removeprefix("http://")
        assert run(f"http://evalrun:s3cret@{host}", "print(1)").status == "Success"
        assert VerlClient(f"http://evalrun:s3cret@{host}/run_code").grade("print(1)", "", "1") is True
        wrong = requests.get(f"http://evalrun:guess@{host}/list_datasets", timeout=TEST_SECONDS)
        assert wrong.status_code == 401


def test_concurrent_submissions_get_their_right_verdicts(endpoint: str) -> None:
    answers = {fenced(ADD): True, fenced("print(1)"): False}
    with ThreadPoolExecutor(8) as pool:
        jobs = [
            (accepted, pool.submit(submit, endpoint, "code_contests", completion, STDIO_ROW, language="python"))
            for completion, accepted in [*answers.items()] * 8
        ]
        assert [job.result().accepted for _, job in jobs] == [accepted for accepted, _ in jobs]
