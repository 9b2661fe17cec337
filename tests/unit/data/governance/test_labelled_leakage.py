"""Recall and precision of the audit on labelled copies of HumanEval and MBPP, with the 13-gram check beside it."""

from collections import Counter, defaultdict
from dataclasses import dataclass

import pytest
from builders.data import PROJECT_ROOT, data_file, json_rows

from evalrun_data.governance.audit import compare
from evalrun_data.governance.compared_texts import DatasetTexts, ProblemText, find_solution, problem_text, text_sha256
from evalrun_data.governance.near_duplicates import ComparedText, ReferenceIndex
from evalrun_data.readers import iter_source_rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass
class Measured:
    """What was found of each kind of row, and how many pairs were right."""

    rows: Counter[str]
    found: Counter[str]
    """Rows whose original is among the problems that the audit names."""
    flagged: Counter[str]
    """Rows for which it names any problem."""
    by_ngram: Counter[str]
    """Rows whose original shares a 13-gram."""
    right_pairs: int = 0
    wrong_pairs: int = 0


def benchmark(name: str, file: str, *, solutions: bool = True) -> DatasetTexts:
    rows = iter_source_rows(str(data_file(file)), name)
    texts = [problem_text(problem, find_solution(row) if solutions else "") for problem, row in rows]
    return DatasetTexts(name, "test", texts)


def original_of(row: dict[str, object]) -> str:
    name = str(row["dup_of"] or "")
    return f"humaneval/{name}" if name.startswith("Human") else f"mbpp_reg/{name.replace('Mbpp', 'MBPP')}"


@pytest.fixture(scope="module")
def measured() -> Measured:
    return measure(solutions=True)


def measure(*, solutions: bool) -> Measured:
    benchmarks = [
        benchmark("humaneval", "humaneval/HumanEval.jsonl.gz", solutions=solutions),
        benchmark("mbpp_reg", "mbpp/mbpp.jsonl.gz", solutions=solutions),
    ]
    rows = json_rows(data_file("contamination/train_mix.jsonl.gz"))
    texts = [ProblemText(str(row["id"]), (text_sha256(str(row["text"])),), str(row["text"])) for row in rows]
    overlaps = compare([DatasetTexts("mix", "train", texts), *benchmarks]).overlaps
    named = defaultdict(set)
    for overlap in overlaps:
        named[overlap.first].add(overlap.second)
    index = ReferenceIndex([ComparedText(f"{b.name}/{t.problem_id}", t.text) for b in benchmarks for t in b.texts])
    result = Measured(Counter(), Counter(), Counter(), Counter())
    for row, text in zip(rows, texts, strict=True):
        kind, original, found = str(row["kind"]), original_of(row), named[f"mix/{text.problem_id}"]
        result.rows[kind] += 1
        result.flagged[kind] += bool(found)
        result.found[kind] += original in found
        result.by_ngram[kind] += original in index.matches(ComparedText("row", text.text)).ngram
        if not kind.startswith("rephrase"):
            result.right_pairs += original in found
            result.wrong_pairs += len(found - {original})
    return result


def share(part: Counter[str], whole: Counter[str], prefix: str) -> float:
    kinds = [kind for kind in whole if kind.startswith(prefix)]
    return sum(part[kind] for kind in kinds) / sum(whole[kind] for kind in kinds)


def test_every_exact_copy_is_found(measured: Measured) -> None:
    assert measured.found["exact"] == measured.rows["exact"] == 143


def test_near_copies_are_found_with_few_wrong_pairs(measured: Measured) -> None:
    assert share(measured.found, measured.rows, "near") >= 0.97
    assert measured.right_pairs / (measured.right_pairs + measured.wrong_pairs) >= 0.95


def test_near_copies_are_found_more_often_than_by_13_grams(measured: Measured) -> None:
    assert share(measured.found, measured.rows, "near") > share(measured.by_ngram, measured.rows, "near") + 0.05


def test_fewer_than_a_fifth_of_rephrasings_are_found(measured: Measured) -> None:
    assert share(measured.found, measured.rows, "rephrase") < 0.2


def table_of(measured: Measured) -> list[str]:
    lines = ["| kind | rows | found | by 13-grams |", "|---|---|---|---|"]
    for kind, rows in sorted(measured.rows.items()):
        found, ngram = (f"{100 * part[kind] / rows:.1f} %" for part in (measured.found, measured.by_ngram))
        if kind == "natural":
            found, ngram = f"flagged: {measured.flagged[kind]}", "-"
        lines.append(f"| {kind} | {rows} | {found} | {ngram} |")
    return lines


def test_documented_table_equals_the_measured_one(measured: Measured) -> None:
    page = (PROJECT_ROOT / "docs" / "data-governance.md").read_text(encoding="utf-8")
    assert "\n".join(table_of(measured)) in page
    precision = 100 * measured.right_pairs / (measured.right_pairs + measured.wrong_pairs)
    assert f"{100 * share(measured.found, measured.rows, 'near'):.1f} % of near copies" in page
    assert f"\n{precision:.1f} % are the labelled ones" in page


def test_documented_rates_without_solutions_equal_the_measured_ones() -> None:
    measured = measure(solutions=False)
    page = " ".join((PROJECT_ROOT / "docs" / "data-governance.md").read_text(encoding="utf-8").split())
    found = 100 * share(measured.found, measured.rows, "near")
    precision = 100 * measured.right_pairs / (measured.right_pairs + measured.wrong_pairs)
    assert f"{found:.1f} % of near copies at {precision:.1f} % precision" in page


def test_text_wrapped_at_eight_words_is_found() -> None:
    problems = list(benchmark("humaneval", "humaneval/HumanEval.jsonl.gz").texts)
    index = ReferenceIndex([ComparedText(problem.problem_id, problem.text) for problem in problems])
    for problem in problems:
        words = problem.text.split()
        wrapped = "\n".join(" ".join(words[start : start + 8]) for start in range(0, len(words), 8))
        found = index.matches(ComparedText("row", wrapped)).near
        assert problem.problem_id in {pair.reference for pair in found}
