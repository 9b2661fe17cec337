"""Reads and writes our own record, the target of every other format."""

import math
import re
from dataclasses import asdict
from typing import Literal

from evalrun_data.entry_points import explain_broken_assert, find_asserted_name
from evalrun_data.families.registry import parse_ground_truth
from evalrun_data.records import (
    ROLES,
    Checker,
    GroundTruth,
    Message,
    Problem,
    ProblemComparator,
    Reference,
    Role,
    ServerTests,
)
from evalrun_data.rows import Row
from evalrun_registry.comparators import CHECKER, COMPARATORS
from evalrun_registry.languages import LANGUAGES, find_language
from evalrun_registry.limits import UNSET_LIMITS, PartialLimits

CHECKER_PROTOCOLS: tuple[Literal["kattis", "testlib"], ...] = ("kattis", "testlib")

SERVER_SETTINGS = ("custom_extract_logic", "provided_data", "dataset_type", "sandbox_config")
"""Settings of SandboxFusion's `TestConfig`: code and rows that it runs or unpickles in its own process."""

_DAY = re.compile(r"^\d{4}-\d{2}-\d{2}$")


def parse_record(row: Row, dataset: str | None, reference: Reference | None = None) -> Problem:
    """Parse a row in our own format. `dataset` is used if the row does not name its own; a reference replaces tests.

    Fields that we do not know are left alone: teams add columns. `prompt_sha256` is computed, never taken over. What
    looks like a setting of SandboxFusion's is refused in a record that names a row there: it would be dropped.
    """
    _refuse_server_settings(row)
    own_dataset = row.name("dataset") if row.has("dataset") or dataset is None else dataset
    # A row may name its split separately: codecontests and valid are the dataset codecontests_valid.
    if dataset is not None and dataset == f"{own_dataset}_{row.optional_text('split')}":
        own_dataset = dataset
    return Problem(
        dataset=own_dataset,
        problem_id=row.text_or_number("problem_id"),
        prompt=row.text("prompt"),
        ground_truth=reference or _tests_or_row(row),
        split=row.optional_text("split"),
        data_source=row.optional_text("data_source", own_dataset),
        difficulty=parse_difficulty(row),
        sandbox_dataset=row.optional_text("sandbox_dataset"),
        sandbox_id=row.text_or_number("sandbox_id") if row.values.get("sandbox_id") not in (None, "") else "",
        language=parse_language(row),
        limits=parse_limits(row),
        comparator=parse_comparator(row),
        messages=parse_messages(row, "messages") if row.has("messages") else (),
        role=parse_role(row),
        date=_date(row),
        tags=parse_tags(row, "tags"),
        licence=parse_licence(row),
    )


def parse_tags(row: Row, field: str) -> tuple[str, ...]:
    """Return the topics of a problem. A column of that name with values other than texts has another meaning and is
    ignored."""
    value = row.values.get(field)
    if not isinstance(value, list | tuple) or not all(isinstance(tag, str) for tag in value):
        return ()
    return tuple(dict.fromkeys(" ".join(row.encodable(field, tag).split()) for tag in value if tag.strip()))


def parse_licence(row: Row) -> str:
    """Return the licence of this problem, in either spelling; empty where the row names none."""
    values = ((field, row.values.get(field)) for field in ("licence", "license"))
    return next((" ".join(row.encodable(field, text).split()) for field, text in values if isinstance(text, str)), "")


def _date(row: Row) -> str:
    """Return the day of publication. A column of that name with anything but a day has another meaning and is
    ignored."""
    value = row.values.get("date")
    return value if isinstance(value, str) and _DAY.match(value) else ""


def parse_role(row: Row) -> Role | Literal[""]:
    """Return the role in a record: train, dev or test; an empty text if the record has no role."""
    if not row.has("role"):
        return ""
    role = next((known for known in ROLES if known == row.values["role"]), None)
    if role is None:
        raise row.error(f"field '{row.path}role' is '{row.values['role']}': write one of {', '.join(ROLES)}")
    return role


def parse_difficulty(row: Row) -> str:
    """Return the difficulty as text: phase 0's Parquet has texts, numbers, and NaN where it has none."""
    value = row.values.get("difficulty")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return row.optional_text("difficulty")
    if math.isnan(value):
        return ""
    return str(int(value)) if math.isfinite(value) and value == int(value) else str(value)


def _tests_or_row(row: Row) -> GroundTruth:
    """Return the tests; a record that names a row of a SandboxFusion server may leave them there."""
    if not row.has("ground_truth") and row.has("sandbox_dataset") and row.has("sandbox_id"):
        return ServerTests()
    truth = row.from_json("ground_truth")
    # Phase 0's own evaluation Parquet has such rows.
    if truth.has("test") and truth.has("entry_point") and not truth.has("prompt"):
        truth = truth.replace_fields(prompt=row.text("prompt"))
    if truth.has("test_list") and not truth.has("entry_point"):
        asserts = truth.texts("test_list")
        if called := find_asserted_name(asserts):
            truth = truth.replace_fields(entry_point=called)
        elif broken := explain_broken_assert(asserts):
            raise truth.error(f"field '{truth.path}test_list': {broken}")
    return parse_ground_truth(truth)


def _refuse_server_settings(row: Row) -> None:
    if not row.has("sandbox_dataset"):
        return
    for name in SERVER_SETTINGS:
        if row.has(name):
            raise row.error(
                f"field '{row.path}{name}' is never sent to a SandboxFusion server, which would execute, unpickle or "
                "replace tests by it: remove it"
            )


def parse_language(row: Row, default: str = "python") -> str:
    """Return the name of the programming language, which the row may give by an alias."""
    if not row.has("language"):
        return default
    spelt = row.name("language")
    language = find_language(spelt)
    if language is None:
        raise row.error(f"field '{row.path}language' is '{spelt}' (known: {', '.join(LANGUAGES)})")
    return language.name


def parse_limits(row: Row) -> PartialLimits:
    """`limits`, with a typing error refused: a limit that is not applied would be a wrong verdict."""
    if not row.has("limits"):
        return UNSET_LIMITS
    limits = row.from_json("limits")
    limits.refuse_other_fields("time_seconds", "memory_mib")
    return PartialLimits(
        limits.optional_number("time_seconds", above=True), limits.optional_count("memory_mib", minimum=1)
    )


def parse_comparator(row: Row) -> ProblemComparator | None:
    """`comparator`, with a typing error refused."""
    if not row.has("comparator"):
        return None
    given = row.from_json("comparator")
    name = given.name("name")
    if name not in COMPARATORS:
        raise given.error(f"field '{given.path}name' is '{name}' (known: {', '.join(COMPARATORS)})")
    if name == CHECKER:
        given.refuse_other_fields("name", "protocol", "language", "source")
        protocol = next((known for known in CHECKER_PROTOCOLS if known == given.name("protocol")), None)
        if protocol is None:
            raise given.error(f"field '{given.path}protocol' is '{given.name('protocol')}' (known: kattis, testlib)")
        return ProblemComparator(name, checker=Checker(protocol, parse_language(given), given.name("source")))
    given.refuse_other_fields("name", "case_sensitive", "abs", "rel", "by_format")
    return ProblemComparator(
        name,
        given.optional_flag("case_sensitive"),
        given.optional_number("abs"),
        given.optional_number("rel"),
        by_format=given.optional_flag("by_format") or False,
    )


def parse_messages(row: Row, field: str) -> tuple[Message, ...]:
    """Parse a chat: a list of objects with `role` and `content`, both texts."""
    value = row.values[field]
    if not isinstance(value, list) or not value:
        raise row.wrong(field, "a list of messages")
    messages = []
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise row.error(f"field '{row.path}{field}[{index}]' should be an object with role and content")
        message = row.make_inner_row(f"{field}[{index}]", item)
        messages.append(Message(message.name("role"), message.text("content")))
    return tuple(messages)


def make_problem_record(problem: Problem) -> dict[str, object]:
    """Return a problem's record, ready for JSON; `parse_record` restores the problem."""
    record: dict[str, object] = {
        "dataset": problem.dataset,
        "split": problem.split,
        "problem_id": problem.problem_id,
        "prompt": problem.prompt,
        "data_source": problem.data_source,
        "ground_truth": problem.ground_truth.to_record() or None,
        "difficulty": problem.difficulty,
        "sandbox_dataset": problem.sandbox_dataset,
        "sandbox_id": problem.sandbox_id,
        "prompt_sha256": problem.prompt_sha256,
        "language": problem.language,
    }
    if problem.role:
        record["role"] = problem.role
    if problem.date:
        record["date"] = problem.date
    if problem.tags:
        record["tags"] = list(problem.tags)
    if problem.licence:
        record["licence"] = problem.licence
    if problem.limits != UNSET_LIMITS:
        record["limits"] = _drop_absent(asdict(problem.limits))
    if problem.comparator is not None:
        fields = _drop_absent(asdict(problem.comparator))
        if not fields["by_format"]:
            del fields["by_format"]
        checker = fields.pop("checker", None)
        record["comparator"] = {**fields, **checker} if isinstance(checker, dict) else fields
    if problem.messages:
        record["messages"] = [asdict(message) for message in problem.messages]
    return record


def _drop_absent(fields: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
