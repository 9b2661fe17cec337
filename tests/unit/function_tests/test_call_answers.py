"""What a batch of calls answered, read in the gateway itself: it must stay small whatever a program wrote."""

import json
import tracemalloc

import pytest

from evalrun_executor.api import ProgramRun
from evalrun_judge.function_tests.call_answers import MAX_TEXT, read_answers

MUCH = 4 << 20


@pytest.mark.parametrize(
    "text",
    [
        b"\n" * MUCH,
        b"load V null\n" + b"\n" * MUCH,
        b"load V null\n0 0 P [" + b"[]," * (MUCH // 3) + b"1]\n0 0 V [1,null]\n",
        b"load V null\n0 0 P " + b"[" * MUCH + b"\n0 0 V [1,null]\n",
        b"load E [" + b"{}," * (MUCH // 3) + b"1]\n",
        b'load E {"type":"' + b"A" * MUCH + b'"}\n',
    ],
    ids=["newlines", "lines", "a print of lists", "a deep print", "an error of lists", "an error of letters"],
)
def test_flood_of_output_is_read_in_bounded_memory(text: bytes) -> None:
    run = ProgramRun("exited", 0, text)
    tracemalloc.start()
    try:
        answers = read_answers(run, [(0, 1)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * MUCH
    assert answers.tests[0].printed == ""
    assert answers.load_end is None or len(answers.load_end.reason) < 100


def test_harness_output_is_parsed() -> None:
    printed = "\U0001f600" * 16384
    assert len(json.dumps(printed)) < MAX_TEXT
    text = f"load V null\n0 0 P {json.dumps(printed)}\n0 0 V [1,null]\n1 0 V [2,null]\nend\n"
    first, second = read_answers(ProgramRun("exited", 0, text.encode()), [(0, 1), (1, 1)]).tests
    assert (first.complete, first.printed, second.complete) == (True, printed, True)
