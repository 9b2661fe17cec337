"""docs/outputs.md: every name that is written stands on the page, and no other."""

import re

import pytest
from builders.data import PROJECT_ROOT
from builders.results.samples import compute_metrics, sample_result, verdict, with_changes

from evalrun_results.metrics.accumulator import MetricOptions
from evalrun_results.metrics.problem_totals import FINAL_STATUSES
from evalrun_results.outputs.qa_logs import QaOptions, error_breakdown, first_failed_case, qa_record
from evalrun_results.outputs.result_row import VERL_CODES
from evalrun_results.outputs.result_table import RESULT_SCHEMA, TEST_TYPE
from evalrun_results.outputs.stratified_sample import QUOTAS, STRATA, find_quotas
from evalrun_results.samples import EXTRACTION_NAMES, GUARDRAIL_NAMES, TEST_STATUS_NAMES

PAGE = (PROJECT_ROOT / "docs" / "outputs.md").read_text()
TABLES = {
    block.splitlines()[0].split("|")[1].strip(): block.splitlines()[2:]
    for block in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE)
}


def named(text: str) -> list[str]:
    return re.findall(r"`([a-z0-9_<>]+)`", text)


def first_cells(heading: str) -> list[str]:
    return [name for row in TABLES[heading] for name in named(row.split("|")[1])]


def meaning(heading: str, field: str) -> list[str]:
    (row,) = (row for row in TABLES[heading] if field in named(row.split("|")[1]))
    return named(row.split("|")[2])


def test_outputs_page_lists_every_metric() -> None:
    results = [sample_result(0, sample, repeat=repeat) for sample in range(3) for repeat in range(2)]
    scored = verdict(["success"])
    scored.score = 0.5
    results[0] = with_changes(results[0], verdict=scored)
    options = MetricOptions(ks=(3,), budget=True, turns=2, gpu_seconds=1.0, gpu_hour_price=1.0)
    names = compute_metrics(results, options)["humaneval"].figures
    written = {re.sub(r"_turn_\d+", "_turn_<t>", re.sub(r"pass_at_\d+", "pass_at_<k>", name)) for name in names}
    assert sorted(first_cells("Metric")) == sorted(written)


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("Column", RESULT_SCHEMA.names),
        ("Field of a test", [field.name for field in TEST_TYPE]),
        ("Field", list(qa_record(sample_result(), QaOptions(0.0, 1)))),
    ],
)
def test_outputs_page_lists_every_field(heading: str, names: list[str]) -> None:
    assert sorted(first_cells(heading)) == sorted(names)


def test_outputs_page_lists_every_value_of_each_field() -> None:
    assert set(meaning("Column", "final_status")) == set(FINAL_STATUSES)
    assert set(meaning("Column", "extraction")) == set(EXTRACTION_NAMES.values())
    assert set(meaning("Column", "guardrails")) == set(GUARDRAIL_NAMES.values())
    assert set(meaning("Field of a test", "case_index")) - {"ran"} == set(TEST_STATUS_NAMES.values())
    failed = sample_result(0, 0, ["wrong_answer"])
    assert set(meaning("Field", "error_breakdown")) == set(error_breakdown(failed.verdict))
    case = first_failed_case(failed.verdict)
    assert case is not None
    assert set(meaning("Field", "execution_output")) - {"first_failed_case", "null"} == set(case)
    metadata = qa_record(failed, QaOptions(0.0, 1))["metadata"]
    assert isinstance(metadata, dict)
    assert set(meaning("Field", "metadata")) == set(metadata)


def test_the_places_of_the_qa_logs_are_those_of_the_table() -> None:
    for row in TABLES["Dataset"]:
        name, in_all, *places = (cell.strip().strip("`") for cell in row.strip("|").split("|"))
        quotas = find_quotas(name)
        assert [quotas[stratum] for stratum in STRATA] == [int(cell) for cell in places]
        assert sum(quotas.values()) == int(in_all)
    assert set(first_cells("Dataset")) == set(QUOTAS) - {"humaneval", "mbpp_reg"}


def test_verls_codes_are_those_that_are_written() -> None:
    (row,) = (row for row in TABLES["Field of a test"] if "verl_code" in row)
    told = {"success": 1, "wrong_answer": 0}
    for code, statuses in re.findall(r"(-\d) ((?:[a-z_]+(?: and )?)+)", row):
        told |= dict.fromkeys(statuses.split(" and "), int(code))
    assert told == VERL_CODES
