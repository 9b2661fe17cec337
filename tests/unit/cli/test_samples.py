"""`evalrun show` and `evalrun samples`, of ended and of running runs."""

import json
from pathlib import Path

import pytest
from builders.results.samples import sample_result, with_changes
from builders.results.stored_runs import write_run

from evalrun_aggregator.ledger.entries import StoredCompletion, StoredVerdict
from evalrun_aggregator.ledger.items import pack_row
from evalrun_aggregator.ledger.store import LedgerWriter
from evalrun_cli.samples.commands import list_samples, show_run, show_sample
from evalrun_cli.samples.selection import SampleName, collect_texts, names_in
from evalrun_results.samples import SampleResult
from evalrun_runtime.exits import BadInputError


def the_samples() -> list[SampleResult]:
    hostile = with_changes(sample_result("set/b#2", 0, ["timeout", "success"]), response="\x1b[2Jgone\x07")
    return [
        sample_result("set/a", 0, ["success"]),
        sample_result("set/a", 1, ["success", "wrong_answer", *["runtime_error"] * 4]),
        hostile,
        sample_result("set/c", 0, None),
    ]


@pytest.fixture
def run(tmp_path: Path) -> str:
    return str(write_run(tmp_path / "run", the_samples()))


@pytest.fixture
def running(tmp_path: Path) -> str:
    """A run of the same samples in a ledger: the last answer has no verdict yet."""
    folder = tmp_path / "running"
    folder.mkdir()
    writer = LedgerWriter(folder / "ledger.sqlite3")
    writer.begin()
    writer.add_problems([("humaneval", "set/a"), ("humaneval", "set/b#2"), ("humaneval", "set/c")])
    for position, result in zip((0, 0, 1, 2), the_samples(), strict=True):
        row = pack_row(position, 0, result.sample)
        writer.add_completions([StoredCompletion(row, result.response, output_tokens=7, started_at=1.0)])
        if (verdict := result.verdict) is not None:
            blob = verdict.SerializeToString()
            writer.add_verdicts(
                [StoredVerdict(row, blob, verdict.final_status, verdict.judged, verdict.accepted, recorded_at=2.0)]
            )
    writer.commit()
    writer.close()
    return str(folder)


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("HumanEval/12", [SampleName("HumanEval/12")]),
        ("HumanEval/12#3", [SampleName("HumanEval/12", 3), SampleName("HumanEval/12#3")]),
        ("a#b", [SampleName("a#b")]),
        ("#1", [SampleName("#1")]),
    ],
)
def test_names_in_text_may_hold_a_sample(written: str, names: list[SampleName]) -> None:
    assert names_in(written) == names


@pytest.mark.parametrize("place", ["run", "running"])
def test_show_run_counts_endings(
    place: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    show_run(request.getfixturevalue(place), as_json=True)
    counts = json.loads(capsys.readouterr().out)
    assert counts == {"humaneval": {"success": 1, "runtime_error": 1, "timeout": 1, "api_error": 1}}


@pytest.mark.parametrize("columns", ["20", "40", "60"])
def test_show_run_narrow_terminal_cuts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    ends = ["wrong_answer", "runtime_error", "timeout"] * 50
    place = write_run(tmp_path / "run", [sample_result(f"set/{number}", 0, [end]) for number, end in enumerate(ends)])
    show_run(str(place), as_json=False)
    first, second, name, *_ = capsys.readouterr().out.splitlines()
    assert first.split() == ["wrong", "runtime"]
    assert second.split() == ["dataset", "samples", "success", "answer", "error", "timeout"]
    assert name.startswith("humaneva")
    assert name.split()[1:] == ["150", "0", "50", "50", "50"]


@pytest.mark.parametrize("place", ["run", "running"])
def test_samples_condition_lists_only_matching_samples(
    place: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    list_samples(request.getfixturevalue(place), ["status=timeout"], 20, as_json=True)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["problem_id"] == "set/b#2"


def test_samples_limit_says_that_there_are_more(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    list_samples(run, [], 2, as_json=False)
    text = capsys.readouterr().out
    assert "set/a#1" in text
    assert "set/b" not in text
    assert "more than 2" in text

    list_samples(run, [], 4, as_json=False)
    assert "more than" not in capsys.readouterr().out

    list_samples(run, ["tokens>9999"], 4, as_json=False)
    assert "no sample meets the conditions" in capsys.readouterr().out


def test_show_sample_failed_tests_show_expected_and_printed_output(
    run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_sample(run, "set/a#1", as_json=False, all_tests=False)
    text = capsys.readouterr().out
    assert "1 of 6 passed" in text
    assert "test 1: wrong answer" in text
    assert "out 1" in text
    assert "other" in text
    assert "test 0" not in text
    assert "2 more failed: --all-tests" in text

    show_sample(run, "set/a#1", as_json=False, all_tests=True)
    text = capsys.readouterr().out
    assert "test 0: success" in text
    assert text.index("test 5") < text.index("test 0"), "those that failed come first"


def test_texts_of_a_test_name_a_compilers_error_once() -> None:
    said = "SyntaxError: expected ':'"
    test = {"input": "f()", "expected_output": "", "stdout": None, "stderr": said, "compile_stderr": said}
    assert collect_texts(test) == {"input": "f()", "compile_stderr": said}
    assert collect_texts({**test, "compile_stderr": ""}) == {"input": "f()", "stderr": said}
    assert collect_texts({"stderr": "", "compile_stderr": ""}) == {}


def test_show_sample_problem_with_several_samples_lists_them(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_sample(run, "a", as_json=False, all_tests=False)
    text = capsys.readouterr().out
    assert "set/a#0" in text
    assert "set/a#1" in text


def test_show_sample_id_with_a_number_sign_is_found(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_sample(run, "set/b#2", as_json=True, all_tests=False)
    assert json.loads(capsys.readouterr().out)["problem_id"] == "set/b#2"


def test_show_sample_hostile_answer_cannot_steer_the_terminal(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_sample(run, "b#2", as_json=False, all_tests=False)
    text = capsys.readouterr().out
    assert "\x1b[2J" not in text
    assert "\x07" not in text
    assert "gone" in text


def test_show_sample_not_judged_says_why(run: str, running: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_sample(run, "set/c", as_json=False, all_tests=False)
    assert "not judged: no sandbox answered" in capsys.readouterr().out
    show_sample(running, "set/c", as_json=False, all_tests=False)
    assert "not judged: not judged yet" in capsys.readouterr().out


def test_show_sample_unknown_name_is_refused_with_remedy(run: str) -> None:
    with pytest.raises(BadInputError, match=r"set/z: .* has no such sample: evalrun samples .* lists"):
        show_sample(run, "set/z", as_json=False, all_tests=False)


def test_samples_cluster_name_is_refused_with_the_command_to_fetch_outputs() -> None:
    with pytest.raises(BadInputError, match="evalrun results night --output DIR"):
        list_samples("er/night", [], 1, as_json=False)


def test_samples_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"no finished run there: summary\.json is missing"):
        list_samples(str(tmp_path), [], 1, as_json=False)


def test_show_run_without_answers_is_refused_with_the_reason(tmp_path: Path) -> None:
    LedgerWriter(tmp_path / "ledger.sqlite3").close()
    with pytest.raises(BadInputError, match="has no answers yet"):
        show_run(str(tmp_path), as_json=False)


def test_show_run_ledger_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite3").write_text("not a database, but long enough to be taken for one" * 99)
    with pytest.raises(BadInputError, match="cannot be read"):
        show_run(str(tmp_path), as_json=False)


@pytest.mark.parametrize(
    ("columns", "shown", "left_out"),
    [
        ("110", ["tests passed", "tokens", "seconds", "judge CPU s"], []),
        ("50", ["tests passed"], ["judge CPU s", "seconds"]),
        ("24", [], ["tests passed", "tokens"]),
    ],
)
def test_a_narrow_terminal_shows_fewer_figures_and_whole_names(
    run: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    columns: str, shown: list[str], left_out: list[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", columns)
    list_samples(run, ["judged=true"], limit=0, as_json=False)
    printed = capsys.readouterr().out
    assert "set/b#2#0" in printed
    assert "reason" not in printed, "none has one"
    assert [each for each in shown if each not in printed] == []
    assert [each for each in left_out if each in printed] == []


def test_show_sample_answer_keeps_its_long_lines_in_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "x = [" + ", ".join(map(str, range(100))) + "]"
    place = write_run(tmp_path / "run", [with_changes(sample_result("set/a", 0, ["success"]), response=line)])
    show_sample(str(place), "set/a", as_json=False, all_tests=False)
    assert line in capsys.readouterr().out.splitlines()
