"""`builtin:verl` beside the published verl 0.9.1: equal scores over its data sources, each difference explained."""

import os
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from builders.command_line import evalrun, results
from builders.other_interpreter import ask_script
from builders.verl_scorers import copy_scorers

pytestmark = pytest.mark.timeout(900)

GSM8K = ("18", ["#### 18", "#### 1,8", "#### 17", "18", "#### 18.", "#### 3\n#### 18", "", "x" * 400 + "#### 18"])
MATH = (
    "\\frac{1}{2}",
    [
        "\\boxed{\\frac12}",
        "\\boxed{1/2}",
        "\\boxed{0.5}",
        "\\boxed{2}",
        "\\frac{1}{2}",
        "\\boxed{",
        "\\fbox{\\frac{1}{2}}",
    ],
)
DAPO = ("204", ["Answer: 204", "Answer: $204$", "\\boxed{204}", "Answer: 3", "204", "", "Answer: 204\nAnswer: 3"])
NUMINA = (
    "\\frac{3}{4}",
    ["\\boxed{\\frac{3}{4}}", "\\boxed{0.75}", "\\boxed{3/4}", "The answer is 0.75", "\\boxed{\\frac{6}{8}}",
     "\\boxed{1}", "", "\\boxed{x}"],
)  # fmt: skip
SEARCH = (
    {"target": ["Paris", "the city of Paris"]},
    ["<answer>Paris</answer>", "<answer>x</answer><answer>the Paris!</answer>", "<answer>Rome</answer>", "Paris", ""],
)
TABLE: dict[str, tuple[Any, list[str]]] = {
    "openai/gsm8k": GSM8K,
    **dict.fromkeys(["lighteval/MATH", "DigitalLearningGmbH/MATH-lighteval", "HuggingFaceH4/MATH-500"], MATH),
    **dict.fromkeys(["math_dapo", "math", "math_dapo_reasoning", "aime2024"], DAPO),
    **dict.fromkeys(
        ["numina_aops_forum", "numina_synthetic_math", "numina_amc_aime", "numina_synthetic_amc", "numina_cn_k12",
         "numina_olympiads"], NUMINA,
    ),
    **dict.fromkeys(
        ["searchR1_nq", "searchR1_triviaqa", "searchR1_popqa", "searchR1_hotpotqa", "searchR1_2wikimultihopqa",
         "searchR1_musique", "searchR1_bamboogle"], SEARCH,
    ),
}  # fmt: skip
"""By data source: a ground truth, and answers."""
GEOMETRY = (
    "2 \\sqrt { 221 }",
    [
        "<think>x</think> \\boxed{2\\sqrt{221}}",
        "\\boxed{2\\sqrt{221}}",
        "<think>x</think> \\boxed{29.73}",
        "<think>x</think> \\boxed{3} \\boxed{2\\sqrt{221}}",
        "<think>x</think> 2\\sqrt{221}",
        "<think>\\boxed{2\\sqrt{221}}",
        "\\boxed{",
        "",
    ],
)


def scored_by_us(rows: list[dict[str, Any]], packages: str, directory: Path) -> list[float | None]:
    file = directory / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    done = evalrun(
        "judge", "--problems", file, "--responses", file, "--grader", "builtin:verl", "--packages", packages,
        "--output", directory / "out", timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = {(row["data_source"], row["sample"]): row["score"] for row in results(directory / "out")}
    return [found[row["data_source"], sample] for row in rows for sample in range(len(row["responses"]))]


async def find_differences(
    table: dict[str, tuple[Any, list[str]]], gen_cpu: Path, tmp_path: Path, others: list[Path]
) -> list[tuple[str, str, object, object]]:
    rows = [
        {"prompt": f"Problem {number}.", "data_source": source, "responses": answers,
         "reward_model": {"ground_truth": truth}}
        for number, (source, (truth, answers)) in enumerate(table.items())
    ]  # fmt: skip
    asked = [
        {"data_source": source, "answer": answer, "ground_truth": truth}
        for source, (truth, answers) in table.items()
        for answer in answers
    ]
    with copy_scorers(gen_cpu, others) as packages:
        # The copy lacks what prime_math imports of verl; only a scorer with further packages needs it here.
        path = {"PYTHONPATH": packages} if others else {}
        wanted = await ask_script(gen_cpu, "verl_scores_side.py", asked, **path)
        ours = scored_by_us(rows, packages, tmp_path)
    return [
        (row["data_source"], row["answer"], verl, own)
        for row, verl, own in zip(asked, wanted, ours, strict=True)
        if verl != own
    ]


@pytest.mark.parametrize("kind", [str, dict])
async def test_scores_equal_those_of_verl_for_its_data_sources(
    kind: type[object], gen_cpu: Path, tmp_path: Path
) -> None:
    """A file for each type of ground truth, as a column has one. A run has 16 datasets at most, and a source is one."""
    table = {source: row for source, row in TABLE.items() if isinstance(row[0], kind)}
    assert await find_differences(table, gen_cpu, tmp_path, []) == []


async def test_geometry_scores_equal_those_of_verl_with_mathruler(gen_cpu: Path, tmp_path: Path) -> None:
    packages = os.environ.get("EVALRUN_TEST_GRADERS")
    if not packages:
        pytest.skip("EVALRUN_TEST_GRADERS names no directory with requirements/graders.txt (docs/testing.md)")
    needed = [Path(packages) / name for name in ("mathruler", "tqdm")]
    assert await find_differences({"hiyouga/geometry3k": GEOMETRY}, gen_cpu, tmp_path, needed) == []
