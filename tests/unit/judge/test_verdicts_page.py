"""docs/verdicts.md: its names and numbers are the code's, and its example is judged as it says."""

import re

from builders.data import PROJECT_ROOT

from evalrun_executor.api import QUIET_SLOWNESS
from evalrun_executor.contained.limits import STOP_FACTOR, wall_limit
from evalrun_executor.timeouts import MAX_SLOWNESS, STRETCHES
from evalrun_judge.extraction import ExtractionMethod, Guardrail, SubmissionMode, extract
from evalrun_judge.short_runs import SHORT_SECONDS, SHORT_SHARE
from evalrun_judge.status import TestStatus
from evalrun_judge.verdict import FinalStatus
from evalrun_registry.comparators import COMPARATORS, SANDBOX_FUSION_RELATIVE, STANDARD_TOLERANCE
from evalrun_registry.limits import CONTEST_LIMITS, DEFAULT_LIMITS

PAGE = (PROJECT_ROOT / "docs" / "verdicts.md").read_text()
SECTIONS = dict(re.findall(r"^## \d\. ([A-Z]\w+)[^\n]*\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))


def first_column(section: str) -> set[str]:
    rows = re.findall(r"^\| (`[^|]*)\|", SECTIONS[section], re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([a-z_-]+)`", row)}


def test_every_status_comparator_and_mode_has_a_line() -> None:
    assert first_column("Statuses") == set(TestStatus)
    assert first_column("Comparing") == set(COMPARATORS)
    assert first_column("Extraction") == {*SubmissionMode, "full"}


def test_every_final_status_is_named_in_its_order() -> None:
    named = re.findall(r"`([a-z_]+)`", SECTIONS["Statuses"].split("`final_status`")[1])
    assert named[: len(FinalStatus)] == list(FinalStatus)


def test_the_extraction_methods_and_their_guardrails_are_named() -> None:
    named = set(re.findall(r"`([a-z_]+)`", SECTIONS["Extraction"]))
    assert named >= {*ExtractionMethod} - {ExtractionMethod.VERBATIM, ExtractionMethod.NONE}
    assert named >= {Guardrail.ANSWER_CUT, Guardrail.NO_CODE_FOUND}


def test_the_limits_are_those_of_the_code() -> None:
    text = SECTIONS["Running"]
    assert (
        f"| {DEFAULT_LIMITS.time_seconds:.0f} s; {CONTEST_LIMITS.time_seconds:.0f} s for stdin/stdout problems |"
        in text
    )
    assert f"| {DEFAULT_LIMITS.memory_mib:,} MiB |" in text
    assert f"| {DEFAULT_LIMITS.output_kib // 1024} MiB |" in text
    assert f"{STOP_FACTOR} x the limit" in text
    assert wall_limit(10.0) == 2 * 10.0 + 5
    assert f"slowness of at most {QUIET_SLOWNESS}" in text
    assert f"up to {('', 'one', 'two', 'three')[len(STRETCHES)]} times, each time with more room" in text
    assert f"A machine slower than {MAX_SLOWNESS} decides nothing" in text
    assert (SHORT_SECONDS, SHORT_SHARE) == (1.0, 0.1)


def test_the_tolerances_are_those_of_the_code() -> None:
    assert f"`rel` = {STANDARD_TOLERANCE:g}".replace("1e-06", "1e-6") in SECTIONS["Comparing"]
    assert f"less than {SANDBOX_FUSION_RELATIVE:g}".replace("1e-05", "1e-5") in SECTIONS["Comparing"]


def test_the_example_is_extracted_as_the_page_says() -> None:
    answer = PAGE.split("````")[1]
    found = extract(answer, language="python", mode=SubmissionMode.AUTO)
    assert found.code == "a, b = map(int, input().split())\nprint(a + b)\n"
    assert found.method is ExtractionMethod.TAGGED_BLOCK
