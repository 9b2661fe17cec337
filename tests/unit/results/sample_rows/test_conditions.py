"""Conditions on samples: what each one chooses, and what is said of one that cannot be."""

from collections.abc import Sequence

import msgspec
import pytest
from builders.results.samples import sample_result, with_changes

from evalrun_results.outputs.result_row import result_row
from evalrun_results.sample_rows.conditions import choose_rows, parse_condition
from evalrun_results.sample_rows.stored_batches import make_batch
from evalrun_results.samples import SampleResult
from evalrun_runtime.exits import BadInputError


def the_samples() -> list[SampleResult]:
    """Sample 0 passed, 1 is wrong, 2 timed out after many tokens, 3 was not judged."""
    return [
        sample_result("A", 0, ["success"], output_tokens=10),
        with_changes(sample_result("A", 1, ["wrong_answer"], output_tokens=20), tags=("math",), difficulty="B"),
        with_changes(
            sample_result("B", 2, ["timeout"], output_tokens=3000),
            response="import OS\n100%_done",
            tags=("dp", "brute force"),
        ),
        sample_result("B", 3, None, output_tokens=None),
    ]


def chosen(conditions: Sequence[str]) -> list[int]:
    batch = make_batch([msgspec.to_builtins(result_row(each)) for each in the_samples()])
    return [row["sample"] for row in choose_rows(batch, [parse_condition(each) for each in conditions]).to_pylist()]


@pytest.mark.parametrize(
    ("conditions", "samples"),
    [
        ([], [0, 1, 2, 3]),
        (["status=timeout"], [2]),
        (["status=timeout|wrong_answer"], [1, 2]),
        (["status!=success"], [1, 2, 3]),
        (["judged=false"], [3]),
        (["accepted=no"], [1, 2]),
        (["accepted=none"], [3]),
        (["tokens>=20"], [1, 2]),
        (["tokens<20"], [0]),
        (["tokens!=20"], [0, 2, 3]),
        (["tokens=none"], [3]),
        (["tokens!=none"], [0, 1, 2]),
        (["pass_ratio=1"], [0]),
        (["problem=A", "sample>0"], [1]),
        (["answer~import os"], [2]),
        (["answer~0%_d"], [2]),
        (["answer~.*"], []),
        (["reason~SANDBOX"], [3]),
        (["status=timeout", "problem=A"], []),
        (["difficulty=B"], [1]),
        (["tag=math"], [1]),
        (["tag=brute force"], [2]),
        (["tag=math|dp"], [1, 2]),
        (["tag!=math"], [0, 2, 3]),
        (["tag=none"], [0, 3]),
        (["tag=none|math"], [0, 1, 3]),
        (["tag!=none"], [1, 2]),
        (["tag=mat"], []),
    ],
)
def test_choose_rows_conditions_choose_samples(conditions: list[str], samples: list[int]) -> None:
    assert chosen(conditions) == samples


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("timeout", "write FIELD=VALUE"),
        ("colour=red", "known are dataset, problem"),
        ("tokens=many", "tokens is a number, not 'many'"),
        ("tokens~3", "write = instead"),
        ("status>timeout", "write = or !="),
        ("accepted=perhaps", "true, false or none"),
    ],
)
def test_parse_condition_unusable_text_is_refused(written: str, named: str) -> None:
    with pytest.raises(BadInputError, match=named):
        parse_condition(written)
