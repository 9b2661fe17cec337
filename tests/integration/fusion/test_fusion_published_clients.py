"""The published clients, every function, with one table of answers for this sandbox and for a stock SandboxFusion.

`EVALRUN_TEST_SANDBOXFUSION` names a stock server; `EVALRUN_TEST_VERL` the site-packages of an installation of verl,
whose module is loaded by itself, for the package imports torch.
"""

import asyncio
import base64
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import sandbox_fusion as client
from builders.fusion.clients import ADD, BOTH_SERVERS, STDIO_ROW, TEST_SECONDS, fenced, server_named
from sandbox_fusion import config

RunCode = client.RunCodeRequest
VERL = os.environ.get("EVALRUN_TEST_VERL")
VERL_MODULE = "verl/utils/reward_score/sandbox_fusion"
ENDLESS = "print(1, flush=True)\nwhile True: pass"


@pytest.fixture(scope="module", params=BOTH_SERVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_named(request.param, tmp_path_factory.mktemp("rows")) as address:
        yield address


def sync_or_async(name: str, asynchronous: bool) -> Callable[..., Any]:
    """One of the client's functions; the asynchronous one in a loop of its own."""
    if not asynchronous:
        function: Callable[..., Any] = getattr(client, name)
        return function
    coroutine = getattr(client, f"{name}_async")
    return lambda *given, **named: asyncio.run(coroutine(*given, **named))


BOTH_WAYS = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


@BOTH_WAYS
def test_run_code_returns_results_and_raises_for_unservable_requests(server: str, asynchronous: bool) -> None:
    run_code = partial(
        sync_or_async("run_code", asynchronous), endpoint=server, max_attempts=1, client_timeout=TEST_SECONDS
    )
    good = run_code(RunCode(code="print(input())", language="python", stdin="é\n"))
    assert (good.status, good.run_result.stdout, good.run_result.return_code) == ("Success", "é\n", 0)
    late = run_code(RunCode(code=ENDLESS, language="python", run_timeout=1))
    assert (late.status, late.run_result.status, late.run_result.stdout) == ("Failed", "TimeLimitExceeded", "1\n")
    filed = run_code(
        RunCode(
            code="open('out', 'w').write(open('in').read() * 2)", language="python", fetch_files=["out", "none"],
            files={"in": base64.b64encode(b"twice ").decode(), "ignored": None},
        )
    )  # fmt: skip
    assert {name: base64.b64decode(text) for name, text in filed.files.items()} == {"out": b"twice twice "}
    with pytest.raises(Exception, match="Sandbox responded with error"):
        run_code(RunCode(code="select 1", language="sql"))
    with pytest.raises(Exception, match="Faas api responded with code 422"):
        run_code(RunCode(code="", language="react"))  # the hosted server's


@pytest.mark.parametrize(
    ("fields", "summary"),
    [
        ({"code": "print(1)"}, "good"),
        ({"code": "1 / 0"}, "run failed"),
        ({"code": "print("}, "run failed"),
        ({"code": ENDLESS, "run_timeout": 1}, "run late"),
        ({"code": "int main(){return 0;}", "language": "cpp"}, "good"),
        ({"code": "int main(){return 3}", "language": "cpp"}, "compile failed"),
        ({"code": "int main(){}", "language": "cpp", "compile_timeout": 0}, "compile late"),
    ],
)
def test_summary_run_code_result_names_the_outcome(server: str, fields: dict[str, Any], summary: str) -> None:
    mapping = client.SummaryMapping(
        Success="good", CompileFailed="compile failed", CompileTimeout="compile late", RunFailed="run failed",
        RunTimeout="run late",
    )  # fmt: skip
    request = RunCode(**{"language": "python", **fields})
    try:
        found = client.run_code(request, endpoint=server, max_attempts=1)
    except Exception as error:
        if "is not one of" not in str(error):
            raise
        pytest.skip("no C++ compiler on this machine")
    if found.compile_result is not None and found.compile_result.return_code == 127:
        pytest.skip("no C++ compiler on this machine")
    assert client.summary_run_code_result(found, mapping) == summary


def test_run_concurrent_returns_results_in_order(server: str) -> None:
    requests = [RunCode(code="print(input())", language="python", stdin=str(n)) for n in range(12)]
    calls = [{"endpoint": server, "client_timeout": TEST_SECONDS}] * 12
    found = client.run_concurrent(client.run_code, [[request] for request in requests], calls, concurrency=4)
    assert [answer.run_result.stdout for answer in found] == [f"{n}\n" for n in range(12)]
    named = [{"request": request, **call} for request, call in zip(requests[:3], calls[:3], strict=True)]
    found = client.run_concurrent(client.run_code, kwargs=named)
    assert [answer.run_result.stdout for answer in found] == ["0\n", "1\n", "2\n"]
    jobs = (partial(client.run_code, request, endpoint=server) for request in requests[:3])
    assert [answer.status for answer in client.run_concurrent_pure(jobs, concurrency=2)] == ["Success"] * 3


@pytest.fixture
def endpoints() -> Iterator[None]:
    before = config.SANDBOX_ENDPOINT, config.DATASET_ENDPOINT
    yield
    config.SANDBOX_ENDPOINT, config.DATASET_ENDPOINT = before


@pytest.mark.usefixtures("endpoints")
def test_set_endpoint_directs_sandbox_and_dataset_calls(server: str) -> None:
    row = client.GetPromptByIdRequest(
        dataset="code_contests", id=7, config=client.TestConfig(provided_data=STDIO_ROW, language="python")
    )
    nowhere = "http://127.0.0.1:1"
    client.set_endpoint(f"{server}/")  # trailing slashes are the client's to cut
    assert client.run_code(RunCode(code="", language="python"), max_attempts=1).status == "Success"
    assert client.get_prompt_by_id(row).id == 7
    client.set_dataset_endpoint(nowhere)
    with pytest.raises(Exception, match="Connection"):
        client.get_prompt_by_id(row)
    assert client.run_code(RunCode(code="", language="python"), max_attempts=1).status == "Success"
    client.set_dataset_endpoint(server)
    client.set_sandbox_endpoint(nowhere)
    assert client.get_prompt_by_id(row).id == 7
    with pytest.raises(Exception, match="Connection"):
        client.run_code(RunCode(code="", language="python"), max_attempts=1)


@BOTH_WAYS
def test_submit_and_submit_safe_judge_and_handle_an_unknown_dataset(server: str, asynchronous: bool) -> None:
    def asked(completion: str, dataset: str = "code_contests") -> client.SubmitRequest:
        settings = client.TestConfig(provided_data=STDIO_ROW, language="python")
        return client.SubmitRequest(dataset=dataset, id="x", completion=completion, config=settings)

    for name in ("submit", "submit_safe"):
        judge = partial(sync_or_async(name, asynchronous), endpoint=server, max_attempts=1, client_timeout=TEST_SECONDS)
        good, bad = judge(asked(fenced(ADD))), judge(asked(fenced("print(-1)")))
        assert (good.id, good.accepted, good.extracted_code, len(good.tests)) == ("x", True, ADD, 5)
        assert (bad.accepted, [test.passed for test in bad.tests]) == (False, [False])
        assert bad.tests[0].exec_info.run_result.stdout == "-1\n"
    with pytest.raises(Exception, match="code 400"):
        sync_or_async("submit", asynchronous)(asked("", "nosuch"), endpoint=server, max_attempts=1)
    safe = sync_or_async("submit_safe", asynchronous)(asked("", "nosuch"), endpoint=server, max_attempts=1)
    assert (safe.accepted, safe.tests) == (False, [])


@BOTH_WAYS
def test_get_prompts_returns_the_prompt_of_get_prompt_by_id(server: str, asynchronous: bool) -> None:
    settings = {"language": "python", "locale": "en"}
    several = client.GetPromptsRequest(
        dataset="code_contests", config=client.TestConfig(provided_data=[STDIO_ROW, STDIO_ROW], **settings)
    )
    one = client.GetPromptByIdRequest(
        dataset="code_contests", id=7, config=client.TestConfig(provided_data=STDIO_ROW, **settings)
    )
    prompts = sync_or_async("get_prompts", asynchronous)(several, endpoint=server)
    prompt = sync_or_async("get_prompt_by_id", asynchronous)(one, endpoint=server)
    assert prompts == [prompt, prompt]
    assert (prompt.id, prompt.labels) == (7, {"level": "easy"})
    assert prompt.prompt.startswith("Add two numbers.\n\n")


@pytest.fixture(scope="module")
def verl() -> ModuleType:
    if VERL is None:
        pytest.skip("EVALRUN_TEST_VERL names no site-packages with verl")
    place = Path(VERL, VERL_MODULE, "__init__.py")
    spec = importlib.util.spec_from_file_location(
        "verl_sandbox_fusion", place, submodule_search_locations=[str(place.parent)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("completion", "tests", "score", "statuses"),
    [
        (fenced(ADD), {"inputs": ["1 2", "3 4"], "outputs": ["3", "7"]}, 1.0, ["success", "success"]),
        (fenced("print(3)"), {"inputs": ["1 2", "3 4"], "outputs": ["3", "7"]}, 0.5, ["success", "wrong_answer"]),
        (fenced("1 / 0"), {"inputs": ["1"], "outputs": ["1"]}, 0.0, ["runtime_error"]),
        (fenced("while True: pass"), {"inputs": ["1"], "outputs": ["1"]}, 0.0, ["timeout"]),
        (
            fenced("def add(a, b):\n    return a + b"),
            {"inputs": ["1\n2", "3\n4"], "outputs": ["3", "8"], "fn_name": "add"}, 0.5, ["success", "wrong_answer"],
        ),
        (fenced("def f(x):\n    return x"), {"assert_case": ["assert f(1) == 1", "assert f(1) == 2"]}, 0.5, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("memory_limit", [1024, None])
def test_verl_compute_score_returns_the_expected_score(
    server: str, verl: ModuleType, completion: str, tests: dict[str, Any], score: float, statuses: list[str] | None,
    memory_limit: int | None, request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    if memory_limit is None and "stock" in request.node.callspec.id:
        pytest.skip("the stock server answers 422 to a null limit")
    found, details = verl.compute_score(
        f"{server}/run_code", threading.Semaphore(2), memory_limit, completion, dict(tests), continuous=True, timeout=2
    )  # fmt: skip
    assert found == score
    if statuses is not None:
        assert [detail["status"] for detail in details] == statuses
