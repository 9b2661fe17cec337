"""What stands in sets and keys: classes of the prompt, and what a program may not put there."""

import json
from collections.abc import Iterator

import pytest
from builders.judge.function_tests import WarmForks, judge

from evalrun_executor.api import ProgramRun
from evalrun_executor.calls import values
from evalrun_judge.function_tests.session import AssertTests

SETUP = """
import enum
from dataclasses import dataclass
class Colour(enum.Enum):
    RED = 1
    BLUE = 2
class Level(enum.IntEnum):
    LOW = 1
@dataclass(frozen=True)
class Point:
    x: int
    y: object
class Node:
    def __init__(self, name):
        self.name = name
        self.near = set()
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[WarmForks]:
    warm = WarmForks()
    yield warm
    warm.close()


@pytest.mark.parametrize(
    ("program", "test"),
    [
        ("def f(): return {Colour.RED: 1}", "assert f() == {Colour.RED: 1}"),
        ("def f(): return {Colour.RED, Colour.BLUE}", "assert f() == set(Colour)"),
        ("def f(): return {(Colour.RED, 1)}", "assert f() == {(Colour.RED, 1)}"),
        ("def f(c): return c is Colour.RED", "assert f(*{Colour.RED})"),
        ("def f(d): return d[Colour.RED]", "assert f({Colour.RED: 5}) == 5"),
        ("def f(): return Level.LOW", "x = f()\nassert x is Level.LOW"),
        ("def f(): return {Point(1, 2)}", "assert f() == {Point(1, 2)}"),
        ("def f(p): return {p: 1}", "p = Point(1, (2, 3))\n(k,) = f(p)\nassert k is p"),
        ("def f(ps): return sorted(p.x for p in ps)", "assert f({Point(2, 0), Point(1, 0)}) == [1, 2]"),
        ("def f(): return {Point(1, frozenset({Point(3, 4)}))}", "assert f() == {Point(1, frozenset({Point(3, 4)}))}"),
        ("def f(n):\n m = Node('b')\n n.near.add(m)\n m.near.add(n)\n return m",
         "n = Node('a')\nm = f(n)\nassert n.near == {m} and m.near == {n}"),
        ("class T(tuple): pass\ndef f(): return {T((1, 2))}", "assert f() == {(1, 2)}"),
        ("class T(tuple):\n def __iter__(self): return iter('')\nt = T((1, 2))\ndef f(): return {t}\ndef g(): return t",
         "assert f() == {(1, 2)}\nassert g() == (1, 2)"),
        ("class L(list):\n def __hash__(self): return 1\ndef f(): return {L([1])}", "assert len(f()) == 1"),
        ("class O: pass\nmade = []\ndef f():\n made.append(Point(1, O()))\n return made[0]\ndef g(): return set(made)",
         "f()\nassert len(g()) == 1"),
    ],
)  # fmt: skip
def test_classes_of_both_sides_cross_in_sets_and_keys(forks: WarmForks, program: str, test: str) -> None:
    found = judge(AssertTests([test], SETUP, "f"), program, execute=forks.run)
    assert found.statuses == ["success"], found.outcomes[0].reason


def test_encode_numbers_objects_in_the_order_in_which_decode_reads_them() -> None:
    ours, theirs = values.Heap("p"), values.Heap("a")
    shared = ("s", 1)
    held = {(shared, n): [shared] for n in range(9)}
    value = [frozenset({(n, (n, "x")) for n in range(50)} | {shared}), held, {shared}, shared]
    structure = values.loads(values.dumps(values.encode(value, ours)))
    back = values.decode(structure, theirs)
    assert back == value
    assert len(theirs.objects["p"]) == len(ours.objects["p"])
    assert all(left == right for left, right in zip(ours.objects["p"], theirs.objects["p"], strict=True))
    assert {id(item) for item in back[2]} == {id(back[3])} == {id(items[0]) for items in back[1].values()}


def test_a_hash_that_would_be_a_call_is_no_value(forks: WarmForks) -> None:
    """A program that writes into the judge's channel puts an object of its own into a set by its number."""

    def forged(mode: str, code: str, stdin: bytes) -> ProgramRun:
        if mode == "assertions":
            return forks.run(mode, code, stdin)
        opaque = {"h": ["O", "program", [values.SPECIALS.index("hash")]]}
        lines = ["load V null", f"0 0 V {json.dumps([opaque, None])}", '0 1 V [{"s": [{"p": 0}]}, null]', "end"]
        return ProgramRun("exited", 0, "".join(f"{line}\n" for line in lines).encode())

    found = judge(AssertTests(["f()\nassert f()"], "", "f"), "def f(): pass", execute=forged)
    assert found.statuses == ["runtime_error"]
    assert "what is no value" in found.outcomes[0].reason
