"""One table of requests and answers for both servers: this sandbox, and a stock SandboxFusion where one is named.

`EVALRUN_TEST_SANDBOXFUSION=http://127.0.0.1:8080` names it; it runs programs uncontained, so let it be a local one
with numpy, on a machine that is not busy: its limits are wall time.
"""

import base64
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from builders.fusion.clients import ADD, BOTH_SERVERS, STDIO_ROW, STOCK, TEST_SECONDS, fenced, server_named

HEAD = 'def f(x):\n    """Add one."""\n'
HUMANEVAL = {
    "task_id": "HumanEval/x", "prompt": HEAD, "entry_point": "f", "canonical_solution": "    return x + 1\n",
    "test": "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(4) == 5\n",
}  # fmt: skip
MBPP = {
    "id": 11, "content": "Add one.", "labels": {"test_setup_code": "import math", "level": 1},
    "test_list": ["assert f(1) == 2", "assert f(4) == 5"],
}  # fmt: skip


@pytest.fixture(scope="module", params=BOTH_SERVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_named(request.param, tmp_path_factory.mktemp("rows")) as address:
        yield address


def post(server: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    answer = requests.post(f"{server}/{path}", json=body, timeout=TEST_SECONDS)
    return answer.status_code, answer.json()


def outcome(answer: dict[str, Any]) -> dict[str, Any]:
    """What must be equal: all but times, texts of the interpreter, and the name of the pod."""
    results = {}
    for part in ("compile_result", "run_result"):
        result = answer[part]
        results[part] = result and {key: result[key] for key in ("status", "return_code", "stdout")}
    assert set(answer) == {"status", "message", *results, "executor_pod_name", "files"}
    return {"status": answer["status"], "files": answer["files"], **results}


def ran(status: str, code: int | None, stdout: str = "") -> dict[str, Any]:
    run = {"status": "Finished" if code is not None else "TimeLimitExceeded", "return_code": code, "stdout": stdout}
    return {"status": status, "files": {}, "compile_result": None, "run_result": run}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"code": "print(input())", "stdin": "é 1\n"}, ran("Success", 0, "é 1\n")),
        ({"code": "print(input())", "stdin": ""}, ran("Failed", 1)),
        ({"code": "import sys\nprint(repr(sys.stdin.read()))"}, ran("Success", 0, "''\n")),
        ({"code": "print('a', end='')\nraise SystemExit(3)"}, ran("Failed", 3, "a")),
        ({"code": "print(1)\nraise ValueError"}, ran("Failed", 1, "1\n")),
        ({"code": "print("}, ran("Failed", 1)),
        ({"code": ""}, ran("Success", 0)),
        ({"code": "import os\nos.abort()"}, ran("Failed", -6)),
        ({"code": "import sys\nsys.stdout.buffer.write(b'a\\xff')"}, ran(
            "Success", 0, "[DecodeError] 'utf-8' codec can't decode byte 0xff in position 1: invalid start byte")),
        ({"code": "print(1, flush=True)\nwhile True: pass", "run_timeout": 1}, ran("Failed", None, "1\n")),
        ({"code": "print(1)", "run_timeout": 0}, ran("Failed", None)),
        ({"code": "print(1)", "run_timeout": "5", "who": "cares"}, ran("Success", 0, "1\n")),
        ({"code": "x = bytearray(1 << 29)", "memory_limit_MB": 256}, ran("Failed", 1)),
        ({"code": "print('x' * 100000)"}, ran("Success", 0, "x" * 100000 + "\n")),
    ],
)  # fmt: skip
def test_python_program_is_answered_as_by_stock_server(
    server: str, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    status, answer = post(server, "run_code", {"language": "python", **fields})
    assert (status, outcome(answer)) == (200, expected)
    assert answer["message"] == ""


def b64(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


@pytest.mark.parametrize(
    ("code", "files", "fetched", "expected"),
    [
        ("print(open('a.txt').read())", {"a.txt": "hi"}, {}, ("Success", 0, "hi\n")),
        ("print(open('d/e/a').read())", {"d/e/a": "hi"}, {"d/e/a": "hi", "./d/e/a": "hi", "d/../d/e//a": "hi"},
         ("Success", 0, "hi\n")),
        ("print(open('b').read())", {"a/../b": "B"}, {"b": "B"}, ("Success", 0, "B\n")),
        ("print(open('a').read())", {"a": "1", "./a": "2"}, {}, ("Success", 0, "2\n")),
        ("open('a', 'a').write('!')", {"a": "1"}, {"a": "1!"}, ("Success", 0, "")),
        ("d = open('i', 'rb').read()\nopen('o', 'wb').write(d[::-1])", {"i": bytes(range(256))},
         {"o": bytes(range(255, -1, -1))}, ("Success", 0, "")),
        ("print(open('é').read())", {"é": "ü"}, {"é": "ü"}, ("Success", 0, "ü\n")),
        ("f = open('kept open', 'w')\nf.write('1' * 100)", {}, {"kept open": "1" * 100}, ("Success", 0, "")),
        ("import os\nos.mkdir('d')\nopen('d/x', 'w').write('1')", {}, {"d": None, "d/x": "1", "d/x/": "1"},
         ("Success", 0, "")),
        ("print(1)", {}, {"no": None, "": None, ".": None, "a\0": None, "x" * 300: None}, ("Success", 0, "1\n")),
        ("open('x', 'w').write('1')\nraise SystemExit(3)", {}, {"x": "1"}, ("Failed", 3, "")),
        ("open('x', 'w').write('1')\nwhile True: pass", {}, {"x": "1"}, ("Failed", None, "")),
        ("print(", {"x": "1"}, {"x": "1"}, ("Failed", 1, "")),
        ("import main, p.q\nprint(main.x, p.q.y)", {"main.py": "x = 1", "p/__init__.py": "", "p/q.py": "y = 2"}, {},
         ("Success", 0, "1 2\n")),
        ("import copy, heapq, os, textwrap\nprint(copy.x, heapq.x, textwrap.x, hasattr(os, 'x'))",
         {f"{name}.py": "x = 4" for name in ("copy", "heapq", "os", "textwrap")}, {}, ("Success", 0, "4 4 4 False\n")),
        ("import os\nd = os.path.dirname(__file__)\nprint(d == os.getcwd())", {"a": "A"}, {},
         ("Success", 0, "True\n")),
        ("print('me' in open(__file__).read())", {"a": "A"}, {}, ("Success", 0, "True\n")),
        ("import os\nos.mkfifo('x')", {}, {"x": None}, (None, None, None)),
    ],
)  # fmt: skip
def test_files_of_a_python_program_are_answered_as_by_stock_server(
    server: str, code: str, files: dict[str, str | bytes], fetched: dict[str, str | bytes | None],
    expected: tuple[str | None, int | None, str | None],
) -> None:  # fmt: skip
    body = {
        "language": "python", "code": code, "run_timeout": 1 if "while True" in code else 4, "fetch_files": [*fetched],
        "files": {name: b64(text) for name, text in files.items()},
    }  # fmt: skip
    status, answer = post(server, "run_code", body)
    assert status == 200
    assert answer["files"] == {name: b64(text) for name, text in fetched.items() if text is not None}
    if expected[0] is not None:  # making a named pipe fails here and not there
        run = answer["run_result"]
        assert (answer["status"], run["return_code"], run["stdout"]) == expected


@pytest.mark.parametrize(
    ("files", "status"),
    [
        ({"a": None, "dir/IGNORE_THIS_FILE": "not base64 é"}, "Success"),
        ({"a": "YW I=!\n"}, "Success"),
        ({"a": "YQ"}, "SandboxError"),
        ({"a": "é"}, "SandboxError"),
        ({"": "YQ=="}, "SandboxError"),
        ({".": "YQ=="}, "SandboxError"),
        ({"d/": "YQ=="}, "SandboxError"),
        ({"a\0b": "YQ=="}, "SandboxError"),
        ({"a" * 300: "YQ=="}, "SandboxError"),
        ({"a": "YQ==", "a/b": "YQ=="}, "SandboxError"),
        ({"a/b": "YQ==", "a": "YQ=="}, "SandboxError"),
    ],
)
def test_unplaceable_files_are_answered_as_by_stock_server(
    server: str, files: dict[str, str | None], status: str
) -> None:
    body = {"language": "python", "code": "print(1)", "files": files, "fetch_files": ["zzz"]}
    code, answer = post(server, "run_code", body)
    assert (code, answer["status"], bool(answer["message"]), answer["files"]) == (
        200, status, status == "SandboxError", {}
    )  # fmt: skip
    assert (answer["run_result"] is None) == (status == "SandboxError")


@pytest.mark.parametrize(
    ("code", "files", "fetched", "expected"),
    [
        ('#include "d/h.h"\n#include <fstream>\nint main(){std::ofstream("o")<<X;}', {"d/h.h": "#define X 7"},
         {"o": "7", "d/h.h": "#define X 7"}, (0, 0)),
        ('#include "main.cpp"\nint main(){return x;}', {"main.cpp": "int x=5;", "a.out": "old"}, {"a.out": "old"},
         (0, 5)),
        ("int main(){", {"h.h": "1"}, {"h.h": "1", "o": None}, (1, None)),
    ],
)  # fmt: skip
def test_files_of_a_cpp_program_are_answered_as_by_stock_server(
    server: str, code: str, files: dict[str, str], fetched: dict[str, str | None], expected: tuple[int, int | None]
) -> None:
    body = {
        "language": "cpp", "code": code, "files": {name: b64(text) for name, text in files.items()},
        "fetch_files": [*fetched],
    }  # fmt: skip
    status, answer = post(server, "run_code", body)
    compiled, run = answer["compile_result"], answer["run_result"]
    if "is not one of" in answer["message"] or compiled["return_code"] == 127:
        pytest.skip("no C++ compiler on this machine")
    assert (status, answer["files"]) == (200, {name: b64(text) for name, text in fetched.items() if text is not None})
    assert (compiled["return_code"], run and run["return_code"]) == expected


@pytest.mark.parametrize(
    ("code", "compiled", "run"),
    [
        ("#include <iostream>\nint main(){int a;std::cin>>a;std::cout<<a+1;}", 0, (0, "5")),
        ("int main(){return 3;}", 0, (3, "")),
        ("#include <cstdlib>\nint main(){abort();}", 0, (-6, "")),
        ("int main(){return 3}", 1, None),
    ],
)
def test_cpp_program_is_answered_as_by_stock_server(
    server: str, code: str, compiled: int, run: tuple[int, str] | None
) -> None:
    status, answer = post(server, "run_code", {"language": "cpp", "code": code, "stdin": "4"})
    if "is not one of" in answer["message"] or (answer["compile_result"] or {}).get("return_code") == 127:
        pytest.skip("no C++ compiler on this machine")
    found = outcome(answer)
    assert (status, found["compile_result"]["return_code"]) == (200, compiled)
    assert found["status"] == ("Success" if run and run[0] == 0 else "Failed")
    if run is None:
        assert found["run_result"] is None
    else:
        assert (found["run_result"]["return_code"], found["run_result"]["stdout"]) == run


@pytest.mark.parametrize(
    ("body", "complaints"),
    [
        ({}, [("missing", "code"), ("missing", "language")]),
        ({"code": 1, "language": "cobol"}, [("string_type", "code"), ("literal_error", "language")]),
        ({"code": "", "language": "python", "run_timeout": "soon"}, [("float_parsing", "run_timeout")]),
        ({"code": "", "language": "python", "files": {"a": 1}}, [("string_type", "a")]),
    ],
)
def test_invalid_body_is_answered_as_by_stock_server(
    server: str, body: dict[str, Any], complaints: list[tuple[str, str]]
) -> None:
    status, answer = post(server, "run_code", body)
    assert status == 422
    assert sorted((each["type"], each["loc"][-1]) for each in answer["detail"]) == sorted(complaints)
    assert all(each["loc"][0] == "body" for each in answer["detail"])


@pytest.mark.parametrize("path", ["run_code", "submit", "get_prompts", "get_prompt_by_id", "list_ids", "get_metrics"])
@pytest.mark.parametrize(
    ("body", "content_type", "status", "complaint"),
    [
        (b"", "application/json", 422, ("missing", ["body"])),
        (b"null", "application/json", 422, ("missing", ["body"])),
        (b"[]", None, 422, ("model_attributes_type", ["body"])),
        (b'{"a": ', "application/json", 422, ("json_invalid", ["body", 6])),
        (b"{}", "text/plain", 422, ("model_attributes_type", ["body"])),
        (b"a=1", "application/x-www-form-urlencoded", 422, ("model_attributes_type", ["body"])),
        (b"\xef\xbb\xbf{}", "application/x+json; charset=utf-8", 422, None),
        (b'{"a": "\xff"}', "application/json", 400, "There was an error parsing the body"),
    ],
)
def test_non_object_body_is_answered_as_by_stock_server(
    server: str, path: str, body: bytes, content_type: str | None, status: int, complaint: object
) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    answer = requests.post(f"{server}/{path}", data=body, headers=headers, timeout=TEST_SECONDS)
    detail = answer.json()["detail"]
    assert answer.status_code == status
    if isinstance(complaint, str):
        assert detail == complaint
    elif complaint is None:
        assert {each["type"] for each in detail} == {"missing"}
    else:
        assert [(each["type"], each["loc"]) for each in detail] == [complaint]


@pytest.mark.parametrize(
    ("method", "path", "status", "detail"),
    [
        ("GET", "/run_code", 405, "Method Not Allowed"),
        ("POST", "/v1/ping", 405, "Method Not Allowed"),
        ("DELETE", "/list_datasets", 405, "Method Not Allowed"),
        ("GET", "/nosuch", 404, "Not Found"),
        ("POST", "/nosuch", 404, "Not Found"),
        ("POST", "/run_code/", 422, None),
    ],
)
def test_unknown_path_or_method_is_answered_as_by_stock_server(
    server: str, method: str, path: str, status: int, detail: str | None
) -> None:
    answer = requests.request(method, f"{server}{path}", json={}, timeout=TEST_SECONDS)
    assert answer.status_code == status
    assert detail is None or answer.json() == {"detail": detail}


def submit(server: str, dataset: str, completion: str, row: Any, **config: Any) -> tuple[int, Any]:
    body = {"dataset": dataset, "id": 7, "completion": completion, "config": {"provided_data": row, **config}}
    return post(server, "submit", body)


@pytest.mark.parametrize(
    ("code", "passed"),
    [
        (ADD, [True] * 5),
        (f"{ADD[:-1]}, '', sep='\\n\\n')", [True] * 5),
        ("n = int(input().split()[0])\nprint(2 * n if n < 2 else -1)", [True, True, False]),
        ("n = int(input().split()[0])\nprint(2 * n + 1e-6)", [False]),
        ("n = int(input().split()[0])\nprint(2 * n * 1.000001)", [True] * 5),
        ("1 / 0", [False]),
        ("print(", [False]),
    ],
)
def test_stdio_submission_is_answered_as_by_stock_server(server: str, code: str, passed: list[bool]) -> None:
    status, result = submit(server, "code_contests", fenced(code), STDIO_ROW, language="python")
    assert (status, result["id"], result["accepted"], result["extracted_code"]) == (200, 7, all(passed), code)
    assert [test["passed"] for test in result["tests"]] == passed
    assert [test["test_info"] for test in result["tests"]] == STDIO_ROW["test"][: len(passed)]
    assert (result["full_code"], result["extracted_type"], result["extra"]) == (None, None, None)


def test_stdio_submission_with_all_cases_runs_every_test(server: str) -> None:
    code = "n = int(input().split()[0])\nprint(2 * n if n != 1 else 'no')"
    extra = {"run_all_cases": True, "return_full_case": True}
    _, result = submit(server, "any", fenced(code), STDIO_ROW, language="python", extra=extra,
                       dataset_type="CommonOJDataset")  # fmt: skip
    assert [test["passed"] for test in result["tests"]] == [True, False, True, True, True]


@pytest.mark.parametrize(
    ("dataset", "row", "completion", "extra", "accepted"),
    [
        ("mbpp", MBPP, fenced("def f(x):\n    return x + 1"), {}, True),
        ("mbpp", MBPP, "def f(x):\n    return x + 1\n[DONE]\nand so on", {}, True),
        ("mbpp", MBPP, fenced("def f(x):\n    return 2\nassert f(1) == 2"), {}, False),
        ("mbpp", MBPP, fenced('def f(x):\n    return x + 1\nif __name__ == "__main__":\n    1 / 0'), {}, True),
        ("mbpp", MBPP, "no code", {}, False),
        ("humaneval_python", HUMANEVAL, "    return x + 1\n\nprint('after')", {}, True),
        ("humaneval_python", HUMANEVAL, "    return 2\n", {}, False),
        ("humaneval_python", HUMANEVAL, fenced(HEAD + "    return x + 1"), {"is_freeform": True}, True),
        ("humaneval_python", HUMANEVAL, fenced("def g(x):\n    return x + 1"), {"is_freeform": True}, False),
        ("shadow_humaneval_python", HUMANEVAL, fenced(HEAD + "    return x + 1\nf(0)"), {"is_freeform": True}, True),
    ],
)
def test_function_submission_is_answered_as_by_stock_server(
    server: str, dataset: str, row: Any, completion: str, extra: dict[str, Any], accepted: bool
) -> None:
    status, result = submit(server, dataset, completion, row, extra=extra)
    assert (status, result["accepted"], [test["passed"] for test in result["tests"]]) == (200, accepted, [accepted])
    assert result["tests"][0]["test_info"] is None
    assert result["extracted_code"] in result["full_code"]


@pytest.mark.parametrize(
    ("dataset", "row", "config"),
    [
        ("code_contests", STDIO_ROW, {}),
        ("code_contests", STDIO_ROW, {"language": "python"}),
        ("code_contests", STDIO_ROW, {"language": "cpp", "locale": "zh"}),
        ("code_contests", STDIO_ROW, {"language": "java", "locale": "en"}),
        ("code_contests", STDIO_ROW, {"language": "rust", "locale": "fr"}),
        ("mbpp", MBPP, {}),
        ("humaneval_python", HUMANEVAL, {}),
        ("humaneval_python", HUMANEVAL, {"extra": {"is_freeform": True}}),
        ("humaneval_python", HUMANEVAL, {"extra": {"is_freeform": True}, "locale": "zh"}),
    ],
)
def test_prompt_is_answered_as_by_stock_server(server: str, dataset: str, row: Any, config: dict[str, Any]) -> None:
    asked = {"dataset": dataset, "config": {**config, "provided_data": [row, row]}}
    status, several = post(server, "get_prompts", asked)
    by_id = {"dataset": dataset, "id": 7, "config": {**config, "provided_data": row}}
    _, one = post(server, "get_prompt_by_id", by_id)
    assert (status, several) == (200, [one, one])
    assert set(one) == {"id", "prompt", "labels"}
    assert post(server, "list_ids", asked) == (200, [one["id"]] * 2)
    if STOCK:
        assert post(STOCK, "get_prompt_by_id", by_id) == (200, one)


@pytest.mark.parametrize(
    ("path", "config"),
    [
        ("submit", {}),
        ("submit", {"dataset_type": "NoDataset"}),
        ("submit", {"dataset_type": "CommonOJDataset", "provided_data": STDIO_ROW}),
        ("submit", {"dataset_type": "MBPPDataset", "provided_data": [MBPP]}),
        ("get_prompts", {"dataset_type": "MBPPDataset", "provided_data": MBPP}),
    ],
)
def test_request_about_an_unusable_dataset_is_400_with_a_reason(server: str, path: str, config: dict[str, Any]) -> None:
    status, answer = post(server, path, {"dataset": "nosuch", "id": 1, "completion": "", "config": config})
    assert status == 400
    assert isinstance(answer["detail"], str)


def test_ping_metrics_and_dataset_list_are_answered_as_by_stock_server(server: str) -> None:
    assert requests.get(f"{server}/v1/ping", timeout=TEST_SECONDS).text == '"pong"'
    asked = {"dataset": "mbpp", "config": {}}
    assert post(server, "get_metrics", {**asked, "results": []}) == (200, {})
    assert post(server, "get_metrics_function", asked) == (200, {"function": None})
    assert isinstance(requests.get(f"{server}/list_datasets", timeout=TEST_SECONDS).json(), list)
