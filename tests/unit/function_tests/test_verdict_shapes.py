"""Each shape of `tests/shapes` gets the verdict that the plain interpreter gives."""

from collections import Counter
from collections.abc import Iterator

import pytest
from builders.judge.function_tests import WarmForks
from builders.judge.verdict_shapes import PlainInterpreter, Shape, judged, shapes

pytestmark = pytest.mark.slow

SHAPES = list(shapes())


@pytest.fixture(scope="module")
def forks() -> Iterator[WarmForks]:
    warm = WarmForks()
    yield warm
    warm.close()


@pytest.fixture(scope="module")
def plain() -> Iterator[PlainInterpreter]:
    running = PlainInterpreter()
    yield running
    running.close()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.kind}-{shape.name}")
def test_a_shape_is_judged_as_the_plain_interpreter_does(
    forks: WarmForks, plain: PlainInterpreter, shape: Shape
) -> None:
    said, why, _ = judged(shape, forks)
    assert said == plain.judge(shape), why


def test_each_class_has_at_least_40_shapes() -> None:
    counts = Counter(shape.kind for shape in SHAPES)
    assert min(counts.values()) >= 40, counts


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.kind == "evalplus"], ids=lambda shape: shape.name)
def test_published_problem_accepts_its_first_program_and_rejects_its_second(
    plain: PlainInterpreter, shape: Shape
) -> None:
    assert plain.judge(shape) == ("accept" if shape.name.endswith("(1)") else "reject")
