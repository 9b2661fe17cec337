"""verl's layout: `prompt` as a chat or a text, `data_source`, `reward_model.ground_truth`, `extra_info`."""

import json
import re
from typing import Final

from evalrun_data.entry_points import find_asserted_name, why_unnamed
from evalrun_data.families.registry import parse_ground_truth
from evalrun_data.formats.calls import Call, call_tests
from evalrun_data.formats.record import (
    parse_comparator,
    parse_difficulty,
    parse_language,
    parse_licence,
    parse_limits,
    parse_messages,
    parse_tags,
)
from evalrun_data.records import ROLES, AssertTests, GroundTruth, Problem, Reference
from evalrun_data.rows import Row, describe_kind

_ID_FIELDS: Final = ("problem_id", "task_id", "name", "id", "index")


def verl_problem_id(row: Row) -> str:
    """`problem_id`, else the first of `_ID_FIELDS` in `extra_info`, else the row's number."""
    if row.has("problem_id"):
        return row.name("problem_id")
    if row.has("extra_info"):
        extra = row.inside("extra_info")
        for field in _ID_FIELDS:
            value = extra.values.get(field)
            if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
                return str(value)
    return str(row.number)


def verl_prompt(row: Row) -> str:
    """Return the prompt as one text: a chat's contents, a blank line between messages.

    What `evalrun data` writes for trainers keeps the published text beside the chat, and that text is the prompt.
    """
    extra = row.values.get("extra_info")
    if isinstance(extra, dict) and extra.get("problem_prompt") is not None:
        return row.make_inner_row("extra_info", extra).text("problem_prompt")
    if isinstance(row.values.get("prompt"), list):
        return "\n\n".join(message.content for message in parse_messages(row, "prompt"))
    return row.text("prompt")


def make_dataset_name(data_source: str) -> str:
    """Return the dataset name of a data source, e.g. openai_gsm8k for openai/gsm8k, which is valid as a file name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", data_source).lstrip("_.-")[:63] or "unnamed"


def parse_verl(row: Row, dataset: str | None, reference: Reference | None = None) -> Problem:
    """Parse a row of verl's layout. Its dataset is the requested dataset, else it is named after its data source.

    A reference replaces tests.
    """
    data_source = row.name("data_source")
    extra = row.inside("extra_info") if row.has("extra_info") else row.make_inner_row("extra_info", {})
    return Problem(
        dataset=dataset or make_dataset_name(data_source),
        problem_id=verl_problem_id(row),
        prompt=verl_prompt(row),
        ground_truth=reference or _tests(row.inside("reward_model"), row),
        split=extra.optional_text("split"),
        data_source=data_source,
        difficulty=parse_difficulty(extra) or parse_difficulty(row),
        language=parse_language(row),
        limits=parse_limits(row),
        comparator=parse_comparator(row),
        messages=parse_messages(row, "prompt") if isinstance(row.values.get("prompt"), list) else (),
        role=next((role for role in ROLES if role == extra.values.get("role")), ""),
        tags=parse_tags(extra, "tags") or parse_tags(row, "tags"),
        licence=parse_licence(extra) or parse_licence(row),
    )


def _tests(reward: Row, row: Row) -> GroundTruth:
    field = f"{reward.path}ground_truth"
    value = reward.values.get("ground_truth")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise reward.error(
                f"field '{field}' is no JSON: an answer for a reward function, not tests: such rows need a grader"
            ) from error
    if value is None:
        raise reward.wrong("ground_truth", "tests as an object or as JSON")
    if not isinstance(value, dict):
        raise reward.error(
            f"field '{field}' is {describe_kind(value)}: an answer for a reward function, not tests of a program: "
            "such rows need a grader"
        )
    truth = reward.make_inner_row("ground_truth", value)
    if truth.has("fn_name"):
        return _calls(truth, row)
    if truth.has("assert_case"):
        return _asserts(truth)
    if truth.has("test") and not truth.has("prompt"):
        if not isinstance(row.values.get("prompt"), str):
            raise truth.error(
                f"field '{truth.path}prompt' is missing, and the row's prompt is a chat: write the problem's own "
                "prompt there, e.g. HumanEval's, for the tests use what it imports and defines"
            )
        truth = truth.replace_fields(prompt=row.text("prompt"))
    if truth.has("test_list") or truth.has("test"):
        return parse_ground_truth(truth)
    return parse_ground_truth(reward.make_inner_row("ground_truth", {**value, **_render_tests(truth)}))


def _calls(truth: Row, row: Row) -> AssertTests:
    """Parse tests with `fn_name`: each input has a JSON value per line, one per argument, by APPS' rules."""
    texts = _render_tests(truth)
    given, wanted = (truth.replace_fields(**texts).texts(field) for field in ("inputs", "outputs"))
    if len(given) != len(wanted) or not given:
        raise truth.error(
            f"field '{truth.path}fn_name' has {len(given)} inputs and {len(wanted)} outputs: a problem needs at least "
            "one test, and an output for each input"
        )
    calls = []
    for number, (arguments, expected) in enumerate(zip(given, wanted, strict=True)):
        try:
            values = [json.loads(line) for line in arguments.split("\n")]
            json.loads(expected)
        except (ValueError, RecursionError) as error:
            raise truth.error(
                f"field '{truth.path}inputs[{number}]' is no call: expected a JSON value a line, and one as output"
            ) from error
        calls.append(Call(json.dumps(values), expected))
    return call_tests(row, truth.name("fn_name"), calls, verl_prompt(row), "apps")


def _asserts(truth: Row) -> AssertTests:
    """`assert_case`: verl runs each after the program and asks for exit code 0; we judge its calls' values."""
    asserts = truth.texts("assert_case")
    if not asserts:
        raise truth.error(f"field '{truth.path}assert_case' is empty: a problem needs at least one test")
    inputs = truth.values.get("inputs")
    if isinstance(inputs, list) and any(inputs):
        raise truth.error(f"field '{truth.path}inputs' has texts beside assert_case: not supported")
    called = truth.name("entry_point") if truth.has("entry_point") else find_asserted_name(asserts)
    if called is None:
        field = f"{truth.path}assert_case"
        otherwise = (
            f"field '{field}' calls no single function in every assert: name it in 'entry_point' beside assert_case"
        )
        raise truth.error(why_unnamed(field, asserts, otherwise))
    return AssertTests(asserts, truth.optional_text("test_setup_code"), called, truth.optional_text("prelude"))


def _render_tests(truth: Row) -> dict[str, object]:
    """Inputs and outputs as verl passes them: numbers as `str()` prints them, a null input as no input at all."""
    lists: dict[str, object] = {}
    for field, null in (("inputs", ""), ("outputs", None)):
        value = truth.values.get(field)
        if isinstance(value, list):
            lists[field] = [
                null if item is None else str(item) if isinstance(item, int | float) else item for item in value
            ]
    return lists
