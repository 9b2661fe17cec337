"""EvalPlus' `HumanEvalPlus.jsonl(.gz)` and `MbppPlus.jsonl(.gz)`: inputs, a reference solution, a tolerance.

The row has no expected values: the test calls the published reference on a copy of each input, in the contained child
in which assertions run, and compares as EvalPlus does. Nothing of the reference runs here.
"""

import json
from collections.abc import Mapping
from typing import Final

from evalrun_data.records import CheckTest, Problem
from evalrun_data.rows import Row

BASE_SUFFIX: Final = "_base"
"""Behind a dataset's name: the base inputs alone."""

# JSON has only lists. These are the Python types of an MBPP+ task's inputs, by task number, as EvalPlus reads them.
# Each name is a function of `_CONVERSIONS`.
_SHAPES: Final[Mapping[str, tuple[int, ...]]] = {
    "tuples": (
        *(2, 116, 132, 143, 222, 261, 273, 394, 399, 421, 424),
        *(429, 470, 560, 579, 596, 616, 630, 726, 740, 744, 809),
    ),
    "lists_of_tuples": (63, 64, 70, 94, 120, 237, 272, 299, 400, 409, 417, 438, 473, 614, 780),
    "first_list_of_tuples": (75, 413, 444, 753),
    "second_tuple": (106, 750),
    "list_of_sets": (115,),
    "float_and_complex": (124,),
    "first_tuple": (250, 405, 446, 617, 720, 763, 808, 307),
    "tuples_of_tuples": (259, 401, 445),
    "tuples_of_tuples_or_values": (278,),
    "dict_of_tuples": (722,),
    "complexes": (252,),
    "tuples_all_the_way": (580, 615, 791),
}
_SHAPE_OF: Final = {number: shape for shape, numbers in _SHAPES.items() for number in numbers}

_CONVERSIONS: Final = {
    "as_they_are": "args",
    "tuples": "[tuple(a) for a in args]",
    "lists_of_tuples": "[[tuple(item) for item in a] for a in args]",
    "first_list_of_tuples": "[[tuple(item) for item in args[0]], args[1]]",
    "second_tuple": "[args[0], tuple(args[1])]",
    "list_of_sets": "[[set(item) if item else {} for item in args[0]]]",
    "float_and_complex": "[float(args[0]), complex(args[1])]",
    "first_tuple": "[tuple(args[0]), *args[1:]]",
    "tuples_of_tuples": "[tuple(tuple(item) for item in a) for a in args]",
    "tuples_of_tuples_or_values": (
        "[tuple(tuple(item) if isinstance(item, list) else item for item in a) for a in args]"
    ),
    "dict_of_tuples": "[{key: tuple(value) for key, value in args[0].items()}, *args[1:]]",
    "complexes": "[complex(args[0])]",
    "tuples_all_the_way": "[_evalrun_tuples(a) for a in args]",
}

# Some tasks have several valid results, so EvalPlus evaluates an expression instead of comparing. Names: out, expected,
# args, atol.
_SETS: Final = "set(out) == set(expected)"
_NOT_NONE: Final = "(out if type(out) is bool else out is not None) == (expected is not None)"
_ORACLES: Final[Mapping[str, str]] = {
    "HumanEval/32": "abs(sum(c * out ** i for i, c in enumerate(args[0]))) <= atol",
    **{f"Mbpp/{number}": _SETS for number in (2, 7, 111, 140, 232, 249, 579, 769)},
    "Mbpp/164": "True",
    "Mbpp/295": "out == 0 or _evalrun_same(out, expected, atol)",
    "Mbpp/558": "_evalrun_same(out, expected, atol)"
    " or out == sum(abs(int(a) - int(b)) for a, b in zip(str(args[0]).zfill(99), str(args[1]).zfill(99)))",
    "Mbpp/581": "_evalrun_same(out, expected, atol)"
    " or abs(out - round(args[0] ** 2 + 2 * args[0] * ((args[0] / 2) ** 2 + args[1] ** 2) ** 0.5)) <= atol",
}
_NOT_NONE_FUNCTIONS: Final = ("check_str", "text_match_three", "text_starta_endb")

_TEST: Final = """\
import copy
import json
import sys
from collections import deque

def _evalrun_plain(value):
    if type(value).__module__ not in sys.stdlib_module_names:
        return False
    if isinstance(value, dict):
        return all(map(_evalrun_plain, value.keys())) and all(map(_evalrun_plain, value.values()))
    return not isinstance(value, (list, tuple, set, frozenset, deque)) or all(map(_evalrun_plain, value))

def _evalrun_tuples(value):
    return tuple(map(_evalrun_tuples, value)) if isinstance(value, list) else value

def _evalrun_inputs(text):
    return [{conversion} for args in json.loads(text)]

def _evalrun_close(out, expected, atol):
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(out, (list, tuple))
            and len(out) == len(expected)
            and all(_evalrun_close(a, b, atol) for a, b in zip(out, expected))
        )
    if isinstance(expected, (int, float, complex)) and isinstance(out, (int, float, complex)):
        return out == expected or abs(out - expected) <= atol + 1e-07 * abs(expected)
    return False

def _evalrun_same(out, expected, atol):
    if out == expected:
        return True
    floats = isinstance(expected, float) or (
        isinstance(expected, (list, tuple)) and expected and all(isinstance(item, float) for item in expected)
    )
    atol = atol or (1e-06 if floats else 0)
    return bool(atol) and type(out) == type(expected) and _evalrun_close(out, expected, atol)

def _evalrun_accepts(args, out, expected, atol):
    return {accepts}

def check(candidate):
    space = {{"__name__": "evalrun_reference"}}
    exec({reference!r}, space)
    reference = space[{entry_point!r}]
    inputs = _evalrun_inputs({inputs!r})
    outs = [candidate(*copy.deepcopy(args)) for args in inputs]
    for args, out in zip(inputs, outs):
        assert {plain}, "not a plain value"
        assert _evalrun_accepts(args, out, reference(*copy.deepcopy(args)), {atol!r})
"""


def is_evalplus(row: Row) -> bool:
    """Return whether a row is from EvalPlus' own files: inputs, and no expected values."""
    return row.has("base_input") and row.has("plus_input") and row.has("canonical_solution")


def parse_evalplus(row: Row, dataset: str | None) -> Problem:
    """Parse a row with `task_id`, `prompt`, `entry_point`, `canonical_solution`, `base_input`, `plus_input` and `atol`.

    The dataset is `humaneval_plus` or `mbpp_plus`. Asked for with `_base` behind that name, it has the base inputs
    alone, which is EvalPlus' other figure. `contract` states which inputs are valid. It is not run, because the
    published inputs are valid.
    """
    task_id = row.name("task_id")
    family, _, number = task_id.partition("/")
    humaneval = family.lower() == "humaneval"
    # `assertion` and `test` repeat the base tests.
    columns = ("base_input", "plus_input", "assertion", "test")
    row.refuse_unused_tests("EvalPlus", *columns)
    published = "humaneval_plus" if humaneval else "mbpp_plus"
    base_alone = dataset == published + BASE_SUFFIX
    fields = ("base_input",) if base_alone else ("base_input", "plus_input")
    inputs: list[object] = []
    for field in fields:
        value = row.values.get(field)
        # Mbpp/793 is published like this. It has no plus inputs.
        if value == {}:
            continue
        if not isinstance(value, list) or not all(isinstance(args, list) for args in value):
            raise row.wrong(field, "a list of lists of arguments")
        inputs.extend(value)
    if not inputs:
        raise row.error(f"field '{fields[0]}' is empty: a problem needs at least one input")
    prompt, entry_point = row.text("prompt"), row.name("entry_point")
    shape = "as_they_are" if humaneval else _SHAPE_OF.get(int(number) if number.isdecimal() else -1, "as_they_are")
    accepts = _ORACLES.get(task_id, "_evalrun_same(out, expected, atol)")
    if not humaneval and entry_point in _NOT_NONE_FUNCTIONS:
        accepts = _NOT_NONE
    test = _TEST.format(
        conversion=_CONVERSIONS[shape],
        accepts=accepts,
        plain="True" if accepts == _NOT_NONE else "_evalrun_plain(out)",
        reference=prompt + row.text("canonical_solution"),
        entry_point=entry_point,
        inputs=json.dumps(inputs),
        atol=row.optional_number("atol") or 0,
    )
    return Problem(
        dataset=published + BASE_SUFFIX if base_alone else published,
        problem_id=f"MBPP/{number}" if family == "Mbpp" else task_id,
        prompt=prompt,
        ground_truth=CheckTest(prompt, test, entry_point),
        split="test",
        data_source=published,
    )
