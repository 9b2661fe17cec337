"""The audit with its stage for meaning: a real model of the test's own, and a judge that answers by a table."""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.governance import prepared, write_plan, write_rows
from builders.tiny_embedder import word_vectors, write_tiny_embedder

from evalrun_data.governance.__main__ import main
from evalrun_data.governance.commands import MeaningOptions, audit_data, show_data
from evalrun_data.governance.compared_texts import DatasetTexts, ProblemText
from evalrun_data.governance.meaning.meaning_stage import ROWS_AT_ONCE, MeaningStage, MeaningThresholds
from evalrun_data.governance.meaning.onnx_embedder import OnnxEmbedder
from evalrun_data.governance.meaning.pair_judge import JudgedPairs, PairAnswer, Question
from evalrun_data.governance.run_audit import AuditFailedError, audit_dataset
from evalrun_data.readers import load_problems
from evalrun_data.sources import Source
from evalrun_runtime.exits import BadInputError, ExitCode

ORIGINAL = "Return the sum of a list of numbers"
TRANSLATED = "Gib die Summe der Liste der Zahlen"
HALF = "Return the sorted sum of a list of words"
"""Half of its words mean what the original's do: a cosine of 0.577."""


def row(problem_id: str, prompt: str) -> dict[str, object]:
    return {"problem_id": problem_id, "prompt": prompt, "ground_truth": {"inputs": ["1\n"], "outputs": ["1"]}}


def plain(problem_id: str, text: str) -> dict[str, object]:
    return {"id": problem_id, "text": text}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [plain("leak", TRANSLATED), plain("half", HALF), plain("other", "longest words sortiert")]
    write_rows(tmp_path / "train.jsonl", rows)
    write_rows(tmp_path / "bench.jsonl", [row("sum", ORIGINAL)])
    write_rows(tmp_path / "clean.jsonl", [row("longest", "laengste laengste")])
    datasets = [
        {"name": "train", "source": "train.jsonl", "role": "train"},
        {"name": "bench", "source": "bench.jsonl", "role": "test"},
        {"name": "clean", "source": "clean.jsonl", "role": "dev"},
    ]
    assert prepared(write_plan(tmp_path, datasets), tmp_path / "out").state == "passed", "texts alone are not alike"
    return tmp_path / "out"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_embedder(tmp_path / "model")


def audit_of(data: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((data / "data_manifests/audit.json").read_text())
    return content


def report_of(data: Path) -> str:
    return (data / "data_manifests/audit_report.md").read_text()


class TableJudge:
    """Answers by the first text, then fails where it is told to."""

    model = "table"
    seconds_per_pair = 0.5

    def __init__(self, answers: Mapping[str, PairAnswer], answered: int = 1000, outage: str = "") -> None:
        self.answers = answers
        self.asked: list[Question] = []
        self._answered = answered
        self._outage = outage

    def judge(self, questions: Sequence[Question], report: Callable[[int], None]) -> JudgedPairs:
        self.asked += questions
        answers = [self.answers[question.first] for question in questions[: self._answered]]
        report(len(answers))
        return JudgedPairs([*answers, *[None] * (len(questions) - len(answers))], self._outage)


def test_a_translation_fails_the_audit_and_the_stage_that_found_it_is_named(
    data: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(data), "--embedder", str(model)]) == ExitCode.FAILED
    said = capsys.readouterr()
    assert "embedder: 5 texts, 29 tokens, about " in said.err
    assert "0 texts are longer than 512 tokens and are cut there" in said.err
    assert "overlap (meaning, 1.00, embedder): train/leak and bench/sum" in said.err
    assert "clean: 1 records, 0 duplicates removed, role dev, audit passed" in said.out
    audit = audit_of(data)
    (found,) = audit["overlaps"]
    assert (found["kind"], found["found_by"], found["first"]) == ("meaning", "embedder", "train/leak")
    assert found["cosine"] == pytest.approx(1.0, abs=0.001)
    assert 0 <= found["jaccard"] < 0.4
    assert set(audit["meaning"]["embedder"]["sha256"]) == {"model.onnx", "tokenizer.json"}
    assert audit["meaning"]["judge"] is None
    report = report_of(data)
    assert "| meaning (cosine 1.000, by the embedder) | train/leak | bench/sum |" in report
    assert "| train | bench | 0 | 0 | 1 | **not allowed** |" in report
    assert f"`model.onnx` {audit['meaning']['embedder']['sha256']['model.onnx']}" in report


def test_the_audit_has_the_same_bytes_each_time(data: Path, model: Path) -> None:
    main(["audit", str(data), "--embedder", str(model)])
    first = (data / "data_manifests/audit.json").read_bytes()
    main(["audit", str(data), "--embedder", str(model)])
    assert (data / "data_manifests/audit.json").read_bytes() == first


def test_lower_min_cosine_reports_more_overlaps(data: Path, model: Path) -> None:
    main(["audit", str(data), "--embedder", str(model), "--min-cosine", "0.5"])
    assert [each["first"] for each in audit_of(data)["overlaps"]] == ["train/leak", "train/half", "train/other"]


def test_allow_file_covers_overlaps_found_by_meaning(data: Path, model: Path, tmp_path: Path) -> None:
    entry = {"first": "train", "second": "bench", "kind": "meaning", "reason": "looked at"}
    (tmp_path / "allow.yaml").write_text(json.dumps([entry]))
    arguments = ["audit", str(data), "--embedder", str(model), "--allow", str(tmp_path / "allow.yaml")]
    assert main(arguments) == ExitCode.SUCCEEDED
    assert audit_of(data)["unused_allowances"] == []


def test_audit_without_an_embedder_compares_no_meaning(data: Path) -> None:
    assert main(["audit", str(data)]) == ExitCode.SUCCEEDED
    assert audit_of(data)["meaning"] is None
    assert "## Meaning" not in report_of(data)


@pytest.mark.parametrize("value", [np.nan, 0.0])
def test_a_broken_model_is_no_clean_audit(data: Path, tmp_path: Path, value: float) -> None:
    before = (data / "data_manifests/audit.json").read_bytes()
    table = np.full((len(word_vectors()), 7), value, dtype=np.float32)
    broken = write_tiny_embedder(tmp_path / "broken", table=table)
    assert main(["audit", str(data), "--embedder", str(broken)]) == ExitCode.BAD_INPUT
    assert (data / "data_manifests/audit.json").read_bytes() == before


def judged(data: Path, model: Path, judge: TableJudge, **options: Any) -> ExitCode:
    meaning = MeaningOptions(model, judge=judge, **{"judge_min_cosine": 0.5, **options})
    return audit_data(data, allow=None, meaning=meaning)


SAID = {
    TRANSLATED: PairAnswer.SAME,
    HALF: PairAnswer.DIFFERENT,
    "longest words sortiert": PairAnswer.DIFFERENT,
}


def test_the_judge_is_asked_about_near_pairs_the_nearest_first(
    data: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = TableJudge(SAID)
    assert judged(data, model, judge) == ExitCode.FAILED
    said = capsys.readouterr().err
    assert "pair judge: at most 500 questions to table, about " in said
    assert "pair judge: 3 pairs are near enough, 3 are asked about" in said
    assert judge.asked[0] == Question(TRANSLATED, ORIGINAL)
    audit = audit_of(data)
    assert [(each["first"], each["found_by"]) for each in audit["overlaps"]] == [("train/leak", "judge")]
    counts = {name: audit["meaning"]["judge"][name] for name in ("asked", "same", "different", "undecided", "outage")}
    assert counts == {"asked": 3, "same": 1, "different": 2, "undecided": 0, "outage": ""}


def test_pair_judge_that_finds_every_pair_different_passes_the_audit(data: Path, model: Path) -> None:
    assert judged(data, model, TableJudge(dict.fromkeys(SAID, PairAnswer.DIFFERENT))) == ExitCode.SUCCEEDED


def test_an_undecided_pair_leaves_the_audit_incomplete(
    data: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = TableJudge({**dict.fromkeys(SAID, PairAnswer.DIFFERENT), HALF: PairAnswer.UNDECIDED})
    assert judged(data, model, judge) == ExitCode.DEGRADED
    assert "the audit is incomplete: 1 pairs that may be the same problem are undecided" in capsys.readouterr().err
    audit = audit_of(data)
    states = {name: each["state"] for name, each in audit["datasets"].items()}
    assert states == {"train": "incomplete", "bench": "incomplete", "clean": "passed"}
    assert [(each["first"], each["why"]) for each in audit["meaning"]["undecided"]] == [("train/half", "undecided")]
    assert "State: **incomplete**." in report_of(data)
    assert "| train | bench | 0 | 0 | 0 | incomplete |" in report_of(data)
    assert show_data(data) == ExitCode.DEGRADED


def test_outage_of_the_pair_judge_leaves_the_audit_incomplete_and_keeps_its_answers(
    data: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = TableJudge(dict.fromkeys(SAID, PairAnswer.DIFFERENT), answered=1, outage="http://judge: Connection refused")
    assert judged(data, model, judge) == ExitCode.DEGRADED
    said = capsys.readouterr().err
    assert "pair judge: no further answers: http://judge: Connection refused" in said
    assert "since the pair judge failed (http://judge: Connection refused)" in said
    audit = audit_of(data)
    assert audit["state"] == "incomplete"
    assert audit["meaning"]["judge"]["not_asked"] == 2
    assert "**The stage is incomplete: http://judge: Connection refused.**" in report_of(data)


def test_an_outage_hides_no_pair_that_is_near_enough_by_itself(data: Path, model: Path) -> None:
    assert judged(data, model, TableJudge({}, answered=0, outage="down")) == ExitCode.FAILED
    assert [(each["first"], each["found_by"]) for each in audit_of(data)["overlaps"]] == [("train/leak", "embedder")]


def test_pairs_beyond_the_bound_are_not_asked_about_and_left_open(data: Path, model: Path) -> None:
    judge = TableJudge(dict.fromkeys(SAID, PairAnswer.DIFFERENT))
    assert judged(data, model, judge, max_judged_pairs=1) == ExitCode.DEGRADED
    assert [question.first for question in judge.asked] == [TRANSLATED]
    assert {each["why"] for each in audit_of(data)["meaning"]["undecided"]} == {"not asked"}


def test_a_judge_below_whose_threshold_pairs_are_found_is_refused(data: Path, model: Path) -> None:
    with pytest.raises(BadInputError, match=r"--judge-min-cosine is 0\.9, above --min-cosine 0\.8"):
        judged(data, model, TableJudge({}), judge_min_cosine=0.9)


def test_run_on_data_with_an_incomplete_audit_is_refused_by_that_name(data: Path, model: Path) -> None:
    judged(data, model, TableJudge({**SAID, TRANSLATED: PairAnswer.DIFFERENT, HALF: PairAnswer.UNDECIDED}))
    source = str(data / "bench.parquet")
    problems = load_problems(source, "bench")
    with pytest.raises(AuditFailedError, match=r"dataset 'bench': its audit is incomplete: see "):
        audit_dataset("bench", Source(source), problems, manifest=None, policy=None)


def texts_of(name: str, role: str, texts: Sequence[str]) -> DatasetTexts:
    held = tuple(ProblemText(str(at), (), text, {"statement": text}) for at, text in enumerate(texts))
    return DatasetTexts(name, role, held)


def stage(model: Path, said: list[str], seconds: float = 0.0) -> MeaningStage:
    ticks = itertools.count()
    return MeaningStage(
        OnnxEmbedder(model), MeaningThresholds(0.95, 0.95, 10), None, said.append, lambda: seconds * next(ticks)
    )


def test_rows_of_many_chunks_and_held_datasets_are_compared_with_each_other(model: Path) -> None:
    fillers = ["longest words"] * (ROWS_AT_ONCE + 10)
    datasets = [
        texts_of("train", "train", [*fillers, "sum list", "..."]),
        texts_of("one", "test", ["summe liste", *["sorted numbers"] * ROWS_AT_ONCE]),
        texts_of("two", "dev", ["total array", "sortiert"]),
        texts_of("empty", "test", []),
    ]
    found = stage(model, []).run(datasets, {("one/0", "none")})
    pairs = {(each.pair.first, each.pair.second) for each in found.found}
    row = f"train/{ROWS_AT_ONCE + 10}"
    assert pairs == {(row, "one/0"), (row, "two/0"), ("one/0", "two/0")}
    assert found.texts == len(fillers) + 1 + 1 + ROWS_AT_ONCE + 2, "a text without a word has no meaning"


def test_pair_that_was_found_by_its_text_is_not_found_again(model: Path) -> None:
    datasets = [texts_of("train", "train", ["sum list"]), texts_of("one", "test", ["sum list"])]
    assert stage(model, []).run(datasets, {("train/0", "one")}).found == ()
    assert len(stage(model, []).run(datasets, set()).found) == 1


def test_embedder_cost_is_reported_before_progress(model: Path) -> None:
    said: list[str] = []
    stage(model, said, 600.0).run([texts_of("one", "test", ["sum list"] * 3 * ROWS_AT_ONCE)], set())
    assert said[0].startswith("embedder: 768 texts, 1,536 tokens, about 10.7 h on this machine")
    assert said[1:] == ["embedder: 512 of 768 texts", "embedder: 768 of 768 texts"]
