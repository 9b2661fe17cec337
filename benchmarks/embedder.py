"""Recall and precision of the audit's stage for meaning with an embedding model, on rewritten problems with labels.

`make bench-embedder DIR=all-MiniLM-L6-v2-onnx/` prints, for each kind of rewriting and each threshold, how many are
found, and how many of the pairs that are named are right. The first table is of the problems of
`rewritten_problems.toml`, their rewritings and their near misses. The second one, with EVALRUN_TEST_DATA, is of half of
the labelled rephrasings of HumanEval and MBPP 11-210 there, and of as many rows that leak nothing.
"""

import argparse
import gzip
import json
import os
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from evalrun_data.governance.audit import compare
from evalrun_data.governance.compared_texts import DatasetTexts, ProblemText, problem_text
from evalrun_data.governance.meaning.onnx_embedder import Embedder, OnnxEmbedder
from evalrun_data.governance.meaning.vectors import nearest
from evalrun_data.readers import iter_source_rows

PROBLEMS: Final = Path(__file__).with_name("rewritten_problems.toml")
DATA: Final = Path(os.environ.get("EVALRUN_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))
REWRITINGS: Final = ("paraphrase", "german", "spanish", "javascript")
NEAR_MISS: Final = "unlike"
UNRELATED: Final = "natural"
"""Kind of the rows of the test data that leak nothing, as far as is known."""
THRESHOLDS: Final = (0.0, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9)


@dataclass(frozen=True)
class LabelledRow:
    """A row of the mix."""

    kind: str
    original: int | None
    """Position of the reference that the row rewrites; None if it rewrites none."""
    text: str


@dataclass(frozen=True)
class LabelledMix:
    """References, and rows that rewrite some of them."""

    references: Sequence[str]
    rows: Sequence[LabelledRow]


@dataclass(frozen=True)
class Measured:
    """The findings at a threshold."""

    threshold: float
    found: dict[str, int]
    """Rows of each kind of rewriting whose nearest reference is the original."""
    flagged: dict[str, int]
    """Rows that rewrite nothing and for which a reference is named, by kind."""
    right: int
    wrong: int

    @property
    def precision(self) -> float:
        return self.right / (self.right + self.wrong) if self.right + self.wrong else 1.0


def own_mix() -> LabelledMix:
    """Return the mix of the file."""
    problems = tomllib.loads(PROBLEMS.read_text(encoding="utf-8"))["problem"]
    rows = [LabelledRow(kind, at, problem[kind]) for at, problem in enumerate(problems) for kind in REWRITINGS]
    rows += [LabelledRow(NEAR_MISS, None, problem[NEAR_MISS]) for problem in problems]
    return LabelledMix([problem["statement"] for problem in problems], rows)


def published_mix(data: Path) -> LabelledMix:
    """Return every second rephrasing of the test data, and the rows there that leak nothing."""
    files = (("humaneval", "humaneval/HumanEval.jsonl.gz"), ("mbpp_reg", "mbpp/mbpp.jsonl.gz"))
    problems = [problem for name, file in files for problem, _ in iter_source_rows(str(data / file), name)]
    places = {problem.problem_id.casefold(): at for at, problem in enumerate(problems)}
    with gzip.open(data / "contamination" / "train_mix.jsonl.gz", "rt", encoding="utf-8") as stream:
        labelled = [json.loads(line) for line in stream]
    rows = [
        LabelledRow(row["kind"], places[row["dup_of"].casefold()] if row["dup_of"] else None, statement(row["text"]))
        for row in labelled
        if row["kind"].startswith("rephrase:") or row["kind"] == UNRELATED
    ]
    return LabelledMix([problem_text(problem, "").compared_parts["statement"] for problem in problems], rows[::2])


def statement(text: str) -> str:
    """Return the part of a plain text that the audit compares."""
    return ProblemText("", (), text).compared_parts["statement"]


def measure(mix: LabelledMix, embedder: Embedder, thresholds: Sequence[float] = THRESHOLDS) -> list[Measured]:
    best, cosines = nearest(embedder.embed([row.text for row in mix.rows]), embedder.embed(mix.references))
    measured = []
    for threshold in thresholds:
        found: dict[str, int] = defaultdict(int)
        flagged: dict[str, int] = defaultdict(int)
        wrong = 0
        for row, at, cosine in zip(mix.rows, best.tolist(), cosines.tolist(), strict=True):
            if cosine < threshold:
                continue
            if row.original is None:
                flagged[row.kind] += 1
            found[row.kind] += row.original == at
            wrong += row.original != at
        measured.append(Measured(threshold, dict(found), dict(flagged), sum(found.values()), wrong))
    return measured


def found_by_text(mix: LabelledMix) -> int:
    """Return how many rewritings the audit finds without a model."""
    references = [ProblemText(str(at), (), text, {"statement": text}) for at, text in enumerate(mix.references)]
    rows = [ProblemText(str(at), (), row.text) for at, row in enumerate(mix.rows)]
    overlaps = compare([DatasetTexts("rows", "train", rows), DatasetTexts("references", "test", references)]).overlaps
    named = {(int(each.first.partition("/")[2]), int(each.second.partition("/")[2])) for each in overlaps}
    return sum((at, row.original) in named for at, row in enumerate(mix.rows))


def print_table(mix: LabelledMix, embedder: Embedder, thresholds: Sequence[float]) -> None:
    sizes = Counter(row.kind for row in mix.rows)
    rewritten = {row.kind for row in mix.rows if row.original is not None}
    rewritings = sum(sizes[kind] for kind in rewritten)
    tokens = int(np.minimum(embedder.count_tokens([row.text for row in mix.rows]), embedder.max_tokens).sum())
    print(f"{len(mix.rows)} rows against {len(mix.references)} references")
    print(f"by text alone: {found_by_text(mix)} of {rewritings} rewritings")
    begin = time.perf_counter()
    results = measure(mix, embedder, thresholds)
    seconds = time.perf_counter() - begin
    print(" ".join(["min cosine", *(f"{kind:>15}" for kind in sizes), f"{'recall':>10}", f"{'precision':>10}"]))
    print(" ".join([f"{'rows':>10}", *(f"{size:>15}" for size in sizes.values())]))
    for each in results:
        counts = [(each.found if kind in rewritten else each.flagged).get(kind, 0) for kind in sizes]
        cells = [f"{each.threshold:>10.2f}", *(f"{count:>15}" for count in counts)]
        print(" ".join([*cells, f"{each.right / rewritings:>10.1%}", f"{each.precision:>10.1%}"]))
    print(f"{tokens:,} tokens of rows, {seconds:.1f} s with the references; load {os.getloadavg()[0]:.1f}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="of the model")
    parser.add_argument("--min-cosine", type=float, action="append", help=f"default: {THRESHOLDS}")
    given = parser.parse_args()
    embedder = OnnxEmbedder(given.directory)
    for mix in [own_mix(), *([published_mix(DATA)] if DATA.is_dir() else [])]:
        print_table(mix, embedder, given.min_cosine or THRESHOLDS)


if __name__ == "__main__":
    main()
