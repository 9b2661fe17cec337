"""Turns an action's run into the next message for the model, cut to a bound. Pure."""

from collections.abc import Sequence

from evalrun_proto.judge.v1 import judge_pb2

NO_PROGRAM = "No program was found. Write it in a code block:\n```python\n...\n```"
_FAILURES = {
    judge_pb2.TEST_STATUS_TIMEOUT: "stopped: time limit exceeded",
    judge_pb2.TEST_STATUS_ASSUMED_TIMEOUT: "stopped: time limit exceeded",
    judge_pb2.TEST_STATUS_MEMORY_LIMIT: "stopped: memory limit exceeded",
    judge_pb2.TEST_STATUS_COMPILE_ERROR: "it does not compile",
    judge_pb2.TEST_STATUS_COMPILE_TIMEOUT: "the compiler took too long",
}


def render_observation(verdict: judge_pb2.Verdict, shown: Sequence[tuple[str, str]], limit: int) -> str:
    """Return the observation for the model.

    Args:
        verdict: verdict on the action's program, which ran on the inputs shown or on an empty input.
        shown: inputs and expected outputs of public tests; empty: the program ran once, with no input.
        limit: maximum characters.
    """
    if not has_program(verdict):
        return cut(NO_PROGRAM, limit)
    tests = verdict.tests
    # If the program did not compile, one test shows all that there is.
    if not shown or (tests and not tests[0].ran):
        return cut(_run(tests[0]) if tests else "", limit)
    each = limit // len(shown)
    return cut("\n\n".join(cut(_on_test(test, *case), each) for test, case in zip(tests, shown, strict=False)), limit)


def append_submission(observation: str, verdict: judge_pb2.Verdict, limit: int) -> str:
    """Return an observation of at most `limit` characters that ends with the number of passed tests and shows no
    test."""
    passed = sum(test.status == judge_pb2.TEST_STATUS_SUCCESS for test in verdict.tests)
    line = f"\n[submitted: {passed} of {len(verdict.tests)} tests passed]"
    return cut(observation, limit - len(line)) + line


def has_program(verdict: judge_pb2.Verdict) -> bool:
    """Return whether the action held something to run."""
    return verdict.final_status != judge_pb2.FINAL_STATUS_EMPTY_OUTPUT


def cut(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters, with the middle of longer texts left out."""
    if len(text) <= limit:
        return text
    mark = f"\n[... {len(text)} characters, the middle left out ...]\n"
    kept = limit - len(mark)
    if kept < 2:
        return text[:limit]
    return text[: kept - kept // 2] + mark + text[len(text) - kept // 2 :]


def _on_test(test: judge_pb2.TestResult, given: str, expected: str) -> str:
    passed = test.status == judge_pb2.TEST_STATUS_SUCCESS
    head = f"Test {test.case_index + 1}: {'passed' if passed else 'failed'}\ninput:\n{given.rstrip()}\n"
    return f"{head}expected:\n{expected.rstrip()}\n{_run(test, 'printed:')}"


def _run(test: judge_pb2.TestResult, title: str = "stdout:") -> str:
    parts = []
    for name, part in ((title, test.stdout), ("stderr:", test.stderr), ("compiler:", test.compile_stderr)):
        if part.text:
            left_out = part.full_length - len(part.text.encode("utf-8", "replace"))
            more = f"\n[{left_out} bytes more]" if left_out > 0 else ""
            parts.append(f"{name}\n{part.text.rstrip()}{more}")
    failure = _FAILURES.get(test.status)
    if failure is not None:
        parts.append(f"[{failure}]")
    elif test.HasField("exit_code") and test.exit_code:
        parts.append(f"[exit code {test.exit_code}]")
    return "\n".join(parts) if parts else "[it printed nothing]"
