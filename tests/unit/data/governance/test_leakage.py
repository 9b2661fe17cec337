"""What counts as the same problem: pairs that were re-written for the eye are found, others are not."""

import json
import random
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from builders.governance import contest_row, json_lines, prepared, write_plan, write_rows

from evalrun_data.governance.allow_file import AllowedOverlap
from evalrun_data.governance.audit import compare
from evalrun_data.governance.compared_texts import DatasetTexts, ProblemText, StoredTexts, text_sha256
from evalrun_data.governance.intra_dataset_duplicates import MAX_VERIFIED
from evalrun_data.governance.near_duplicates import ComparedText, Fingerprint, ReferenceIndex
from evalrun_data.governance.shingles import shingle_runs
from evalrun_runtime.exits import BadInputError

PROBLEM = '''\
def closest_pair(numbers, target):
    """Return the two numbers of the list whose sum is closest to the target, smaller one first.
    If several pairs are equally close, return the pair with the smallest first number.
    >>> closest_pair([1, 5, 9, 14], 12)
    (1, 9)
    >>> closest_pair([2, 2, 40], 5)
    (2, 2)
    """
    numbers = sorted(numbers)
    best = None
    for left in range(len(numbers)):
        for right in range(left + 1, len(numbers)):
            distance = abs(numbers[left] + numbers[right] - target)
            if best is None or distance < best[0]:
                best = (distance, numbers[left], numbers[right])
    return best[1], best[2]
'''
OTHER = '''\
def merge_intervals(intervals):
    """Merge all overlapping intervals of the list and return what is left, ordered by where each begins.
    >>> merge_intervals([(1, 3), (2, 6), (8, 10)])
    [(1, 6), (8, 10)]
    """
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
'''
REPHRASED = """\
// Given an array and a goal, find which two elements add up to a value as near as possible to that goal.
function nearestTwoSum(arr, goal) {
  arr.sort((a, b) => a - b);
  let lo = 0, hi = arr.length - 1, found = null;
  while (lo < hi) {
    const total = arr[lo] + arr[hi];
    if (found === null || Math.abs(total - goal) < Math.abs(found[0] - goal)) found = [total, arr[lo], arr[hi]];
    if (total < goal) lo++; else hi--;
  }
  return [found[1], found[2]];
}
"""


def words_a_line(text: str, count: int) -> str:
    words = text.split()
    return "\n".join(" ".join(words[start : start + count]) for start in range(0, len(words), count))


def renamed(text: str) -> str:
    for old, new in (("numbers", "values"), ("left", "i"), ("right", "j"), ("best", "found"), ("distance", "gap")):
        text = re.sub(rf"\b{old}\b", new, text)
    return text


@pytest.mark.parametrize(
    "text",
    [
        PROBLEM,
        words_a_line(PROBLEM, 8),
        words_a_line(PROBLEM, 1),
        textwrap.indent(PROBLEM, "        ").replace("    ", "\t"),
        renamed(PROBLEM),
        PROBLEM.replace('"""', "").replace("    Return", "    # Return").replace("    If", "    # If"),
        f"## Task\n\n**Solve this:**\n\n```python\n{PROBLEM}```\n",
        PROBLEM.upper(),
        PROBLEM.replace("closest", "closset").replace("pair", "piar"),
    ],
    ids=["same", "8 words a line", "1 word a line", "tabs", "renamed", "comments", "markdown", "case", "typing errors"],
)
def test_problem_with_changed_layout_or_names_is_near(text: str) -> None:
    found = ReferenceIndex([ComparedText("a", PROBLEM), ComparedText("b", OTHER)]).matches(ComparedText("row", text))
    assert [pair.reference for pair in found.near] == ["a"]


@pytest.mark.parametrize("text", [OTHER, "", "x", "Write a function.", REPHRASED])
def test_another_problem_is_not_near_and_neither_is_a_rephrasing(text: str) -> None:
    found = ReferenceIndex([ComparedText("a", PROBLEM)]).matches(ComparedText("row", text))
    assert found.near == ()


@pytest.mark.parametrize(
    ("squeezed", "runs"),
    [("", []), ("abc", ["abc"]), ("abcde", ["abcde"]), ("abcdeäb", ["abcde", "bcdeä", "cdeäb"])],
)
def test_shingle_runs_text_of_any_length_returns_each_in_order(squeezed: str, runs: list[str]) -> None:
    assert shingle_runs(squeezed) == runs


def test_fingerprint_text_that_repeats_itself_has_the_same_signature() -> None:
    once, repeated = Fingerprint.from_text("abcdefabcde"), Fingerprint.from_text("abcdef" * 9 + "abcde")
    assert len(repeated.runs) > len(once.runs)
    assert once.shingles == repeated.shingles
    assert once.signature.digest() == repeated.signature.digest()


def test_a_problem_quoted_inside_a_long_text_is_near_by_containment() -> None:
    essay = " ".join(f"sentence {number} says something else entirely about trees" for number in range(400))
    found = ReferenceIndex([ComparedText("a", PROBLEM)]).matches(ComparedText("row", f"{essay}\n{PROBLEM}\n{essay}"))
    (pair,) = found.near
    assert pair.jaccard < 0.4
    assert pair.containment == 1.0
    assert found.ngram == ("a",)


def text_of(problem_id: str, text: str) -> ProblemText:
    return ProblemText(problem_id, (text_sha256(text),), text)


def dataset(name: str, role: str, *texts: ProblemText) -> DatasetTexts:
    return DatasetTexts(name, role, texts)


UPPER = "Write a function to convert the vowels of every second word of a given sentence to uppercase."
LOWER = UPPER.replace("uppercase", "lowercase")


def found_in(text: str, *references: str) -> list[tuple[str, str]]:
    rows = [text_of(f"p{number}", each) for number, each in enumerate(references)]
    overlaps = compare([dataset("train", "train", text_of("t", text)), dataset("test", "test", *rows)]).overlaps
    return [(each.second, each.part) for each in overlaps]


def test_statement_without_its_solution_in_a_template_is_found_by_its_part() -> None:
    row = f"### Instruction:\nYou are an expert. {UPPER}\nThink step by step, and be brief.\n### Response:\nSure!"
    assert found_in(row, f"{UPPER}\n{PROBLEM}", OTHER) == []
    benchmark = ProblemText("p0", ("x",), f"{UPPER}\n{PROBLEM}", {"statement": UPPER, "solution": PROBLEM})
    overlaps = compare([dataset("train", "train", text_of("t", row)), dataset("test", "test", benchmark)]).overlaps
    assert [(each.kind, each.part, each.containment) for each in overlaps] == [("near", "statement", 1.0)]


def test_only_the_leaking_problem_is_found_and_not_its_sibling() -> None:
    row = f"Please help me. {LOWER} Thank you very much for your time, and for all of your patience."
    assert [name for name, _ in found_in(row, UPPER, LOWER)] == ["test/p1"]
    assert [name for name, _ in found_in(f"{UPPER}\n\nAnd then the next task.\n\n{LOWER}", UPPER, LOWER)] == [
        "test/p0",
        "test/p1",
    ]


def test_texts_that_share_one_template_alone_are_not_near() -> None:
    template = " ".join(f"instruction number {number} is for all of them" for number in range(12))
    words = [f"{each} the {each}est of {each}s" for each in ("zebra", "quokka", "yacht", "violin", "walnut", "xylem")]
    tests = dataset("test", "test", *(text_of(f"x{place}", f"{template} {each}") for place, each in enumerate(words)))
    row = text_of("t", f"{template} write down what the weather will be like tomorrow in the mountains")
    assert compare([dataset("train", "train", row), tests]).overlaps == []


def test_stored_text_of_an_earlier_preparation_has_its_statement_found_in_the_text(tmp_path: Path) -> None:
    file = tmp_path / "old.jsonl"
    file.write_text(json.dumps({"problem_id": "p", "exact": ["x"], "text": PROBLEM}) + "\n")
    (text,) = StoredTexts(file)
    assert text.compared_parts["statement"].split()[:4] == ["Return", "the", "two", "numbers"]
    assert ">>>" not in text.compared_parts["statement"]


def test_every_pair_of_datasets_is_compared_once_but_two_training_splits() -> None:
    overlaps = compare(
        [
            dataset("train", "train", text_of("t", PROBLEM)),
            dataset("more", "train", text_of("m", PROBLEM)),
            dataset("valid", "dev", text_of("v", PROBLEM)),
            dataset("test", "test", text_of("x", words_a_line(PROBLEM, 8)), text_of("y", OTHER)),
        ]
    ).overlaps
    assert [(o.kind, o.first, o.second) for o in overlaps] == [
        ("exact", "train/t", "valid/v"),
        ("near", "train/t", "test/x"),
        ("exact", "more/m", "valid/v"),
        ("near", "more/m", "test/x"),
        ("near", "valid/v", "test/x"),
    ]


def test_canonically_equal_texts_are_exact() -> None:
    spaced = PROBLEM.replace("\n", "\r\n").replace("    ", "\t \t")
    overlaps = compare(
        [dataset("train", "train", text_of("t", spaced)), dataset("test", "test", text_of("x", PROBLEM))]
    ).overlaps
    assert [o.kind for o in overlaps] == ["exact"]


@pytest.mark.parametrize(
    ("entry", "allowed"),
    [
        (AllowedOverlap("train/t", "test/x", "why"), True),
        (AllowedOverlap("test/x", "train/t", "why"), True),
        (AllowedOverlap("train", "test", "why"), True),
        (AllowedOverlap("train", "test/x", "why", "exact"), True),
        (AllowedOverlap("train", "test/x", "why", "near"), False),
        (AllowedOverlap("train/other", "test/x", "why"), False),
        (AllowedOverlap("tra", "test", "why"), False),
    ],
)
def test_an_allowance_covers_a_pair_in_either_order(entry: AllowedOverlap, allowed: bool) -> None:
    datasets = [dataset("train", "train", text_of("t", PROBLEM)), dataset("test", "test", text_of("x", PROBLEM))]
    (overlap,) = compare(datasets, [entry]).overlaps
    assert (overlap.allowed == "why") is allowed


@pytest.mark.parametrize("role", ["train", "test"])
def test_near_duplicates_inside_a_dataset_are_named_by_the_first_of_their_group(role: str) -> None:
    rows = [
        text_of("first", PROBLEM),
        text_of("other", OTHER),
        text_of("wrapped", words_a_line(PROBLEM, 8)),
        text_of("renamed", PROBLEM.replace("distance", "gap")),
        text_of("rephrased", REPHRASED),
    ]
    found = compare([dataset("mine", role, *rows), dataset("alone", "test")])
    assert [(near.dataset, near.problem_id, near.near_to) for near in found.intra_dataset_duplicates] == [
        ("mine", "wrapped", "first"),
        ("mine", "renamed", "first"),
    ]
    assert found.intra_dataset_duplicates[0].jaccard == 1.0
    assert 0.6 <= found.intra_dataset_duplicates[1].jaccard < 1.0
    assert found.overlaps == []


class CountedTexts(tuple[ProblemText, ...]):
    """Texts that count how often one is read by its position."""

    asked = 0

    def __getitem__(self, position: Any) -> Any:
        self.asked += 1
        return super().__getitem__(position)


def test_a_thousand_problems_from_one_template_are_each_compared_with_one() -> None:
    rows = CountedTexts(text_of(f"p{number}", PROBLEM.replace("12", str(number))) for number in range(1000))
    found = compare([DatasetTexts("mine", "train", rows), dataset("test", "test", text_of("x", OTHER))])
    assert {near.near_to for near in found.intra_dataset_duplicates} == {"p0"}
    assert rows.asked == len(found.intra_dataset_duplicates) == 999


def test_rows_of_which_half_is_one_template_are_compared_with_few_and_a_duplicate_is_found() -> None:
    chance = random.Random(5)

    def words(count: int) -> str:
        return " ".join("".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(count))

    template, own = words(85), [words(45) for _ in range(300)]
    texts = [text_of(f"p{number}", f"{template} {text}") for number, text in enumerate(own)]
    copied = text_of("copied", f"{template} {own[7]} {words(2)}")
    rows = CountedTexts([*texts, copied])
    found = compare([DatasetTexts("mine", "train", rows), dataset("test", "test", text_of("x", OTHER))])
    assert [(near.problem_id, near.near_to) for near in found.intra_dataset_duplicates] == [("copied", "p7")]
    assert rows.asked <= MAX_VERIFIED * len(rows)


def test_near_duplicates_inside_a_dataset_are_reported_and_do_not_fail_the_audit(tmp_path: Path) -> None:
    rows = [
        {**contest_row(number), "prompt": text}
        for number, text in enumerate((PROBLEM, OTHER, PROBLEM.replace("best", "found")))
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    plan = write_plan(tmp_path, [{"name": "contest", "source": "rows.jsonl", "role": "train"}])
    assert prepared(plan, tmp_path / "out").state == "passed"
    (near,) = json.loads((tmp_path / "out/data_manifests/audit.json").read_text())["near_inside"]
    assert (near["dataset"], near["problem_id"], near["near_to"]) == ("contest", "p2", "p0")
    report = (tmp_path / "out/data_manifests/audit_report.md").read_text()
    counts = report.partition("## 1. Sample counts")[2].partition("## 2.")[0]
    assert f"| contest | p2 | p0 | {near['jaccard']:.3f} |" in counts
    assert len(json_lines(tmp_path / "out/data_manifests/contest.jsonl")) == 3


def test_stored_texts_are_read_again_by_position(tmp_path: Path) -> None:
    texts = [text_of("a", "first\nline"), text_of("b", "zwölf"), text_of("c", "third")]
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(text.json_line for text in texts), encoding="utf-8")
    stored = StoredTexts(file)
    seen = []
    for place, text in enumerate(stored):
        seen.append(text)
        assert [stored[earlier] for earlier in range(place + 1)] == texts[: place + 1]
    assert seen == texts
    file.write_text(texts[0].json_line + "\n", encoding="utf-8")
    with pytest.raises(BadInputError, match=r"texts.jsonl:2: is blank: prepare the data again"):
        list(stored)
