"""Small programs and tests, judged and run by the plain interpreter: `tests/shapes/*.txt`, one file a class.

Problems as EvalPlus publishes them are in `evalplus_shapes`.

A shape is `=== ENTRY: what it shows`, programs with `+++` between them, `---`, and the test, as one would write it
below the program. What is right is what plain CPython says of the program with the test below it.
"""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from builders.judge.evalplus_shapes import PUBLISHED
from builders.judge.function_tests import WarmForks, judge

from evalrun_judge.function_tests.session import AssertTests, CheckTest

DIRECTORY = Path(__file__).parents[2] / "shapes"
SECONDS = 5.0


@dataclass(frozen=True)
class Shape:
    """One program against one test."""

    kind: str
    name: str
    entry: str
    program: str
    test: str
    prompt: str | None = None
    """Of a test that defines `check`; None: the test is asserts."""


def shapes() -> Iterator[Shape]:
    for file in sorted(DIRECTORY.glob("*.txt")):
        for part in file.read_text().split("=== ")[1:]:
            title, _, body = part.partition("\n")
            programs, _, test = body.partition("---\n")
            entry = title.partition(":")[0]
            for number, program in enumerate(programs.split("+++\n")):
                yield Shape(file.stem, f"{title} ({number + 1})", entry, program, test)
    for published in PUBLISHED:
        given = published.test()
        for number, program in enumerate(published.programs):
            name = f"{published.task}: {published.shows} ({number + 1})"
            yield Shape("evalplus", name, published.entry, program, given.test, given.prompt)


class PlainInterpreter:
    """Runs shapes as `python -I -c` does, each in a fork of one that has just started."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-I", "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def judge(self, shape: Shape) -> str:
        """What it says: accept, or reject."""
        called = "" if shape.prompt is None else f"\ncheck({shape.entry})"
        text = f"{shape.program}\n{shape.test}{called}".encode()
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(b"%d\n" % len(text) + text)
        self._server.stdin.flush()
        return {b"0\n": "accept", b"1\n": "reject"}[self._server.stdout.readline()]

    def close(self) -> None:
        self._server.communicate()


_SERVER = """
def program():
    import os, signal, sys
    while line := sys.stdin.buffer.readline():
        text = sys.stdin.buffer.read(int(line)).decode()
        child = os.fork()
        if not child:
            null = os.open(os.devnull, os.O_RDWR)
            for end in (0, 1, 2):
                os.dup2(null, end)
            signal.alarm(60)
            del globals()["program"]
            return text
        print(int(os.waitpid(child, 0)[1] != 0), flush=True)
    return ""
exec(compile(program(), "<string>", "exec"))
"""
"""A child returns from the function and goes on as the interpreter's own program: it ends as that would."""


def judged(shape: Shape, forks: WarmForks) -> tuple[str, str, int]:
    """What the judge says, why, and in how many batches of calls."""
    if shape.prompt is None:
        tests: AssertTests | CheckTest = AssertTests((shape.test,), "", shape.entry)
    else:
        tests = CheckTest(shape.prompt, shape.test, shape.entry)
    found = judge(tests, shape.program, execute=lambda mode, code, stdin: forks.run(mode, code, stdin, SECONDS))
    (outcome,) = found.outcomes
    said = {"success": "accept", "api_error": "not judged"}.get(str(outcome.status), "reject")
    return said, f"{outcome.status}: {outcome.reason}", len(found.batches)
