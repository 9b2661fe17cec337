"""The commands as a user types them: what they print, write and end with."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from builders.stored_runs import GPT_4, QWEN, recorded_verdicts, verdicts_of, write_run
from builders.web_page import Page

from evalrun_cli.__main__ import main

Command = Callable[..., CompletedProcess[str]]


@pytest.fixture
def evalrun(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command in this process: another one would spend seconds on imports."""

    def run(*arguments: str | Path) -> CompletedProcess[str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return CompletedProcess(arguments, int(str(ended.value.code)), said.out, said.err)

    return run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with the runs `old`, `new` (worse by 30 of 100), `same`, and one of another dataset."""
    write_run(tmp_path / "old", verdicts_of([True] * 80 + [False] * 20), run="old", containment_levels=["full"])
    write_run(tmp_path / "new", verdicts_of([True] * 50 + [False] * 50), run="new", containment_levels=["seccomp"])
    write_run(tmp_path / "same", verdicts_of([True] * 80 + [False] * 20), run="same")
    write_run(tmp_path / "other", verdicts_of([True], dataset="mbpp_reg"))
    return tmp_path


def a_policy(folder: Path, *gates: dict[str, str]) -> Path:
    path = folder / "policy.yaml"
    path.write_text(json.dumps([{"baseline": "old", "dataset": "humaneval"} | gate for gate in gates]))
    return path


@pytest.mark.parametrize(
    ("run", "gates", "code", "words"),
    [
        ("same", [{}], 0, ["PASS"]),
        ("new", [{"maxRegression": "0.02"}], 4, ["FAIL"]),
        ("new", [{"maxRegression": "0.3"}], 5, ["INCONCLUSIVE"]),
        ("new", [{"maxRegression": "0.5"}], 0, ["PASS"]),
        ("new", [{"maxRegression": "0.5"}, {"maxRegression": "0.3"}], 5, ["PASS", "INCONCLUSIVE"]),
        ("new", [{"maxRegression": "0.3"}, {}, {"maxRegression": "0.5"}], 4, ["INCONCLUSIVE", "FAIL", "PASS"]),
    ],
)
def test_a_gate_ends_with_the_worst_of_its_decisions(
    evalrun: Command, runs: Path, run: str, gates: list[dict[str, str]], code: int, words: list[str]
) -> None:
    done = evalrun("gate", runs / run, "--policy", a_policy(runs, *gates), "--format", "json")
    assert (done.returncode, done.stderr) == (code, "")
    assert [decision["decision"] for decision in json.loads(done.stdout)] == words


def test_gates_are_shown_in_every_format(evalrun: Command, runs: Path) -> None:
    policy = a_policy(runs, {"maxRegression": "0.5"}, {"maxRegression": "0.02", "metric": "pass_ratio_mean"})
    for form in ("text", "markdown", "json", "html"):
        done = evalrun("gate", runs / "new", "--policy", policy, "--format", form)
        assert (done.returncode, done.stderr) == (4, "")
        shown = Page.of(done.stdout).text if form == "html" else done.stdout
        assert shown.index("PASS") < shown.index("FAIL")
        assert "-0.3" in shown
        assert "pass_ratio_mean" in shown
        if form == "html":
            assert Page.of(done.stdout).unbalanced == []
            assert "McNemar's exact test: p = " in shown


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("[]", "is not a list of gates: write one a line, e.g. - {baseline:"),
        ("dataset: humaneval", "is not a list of gates"),
        ("- {dataset: humaneval}", "[0].baseline: is missing"),
        ("- {baseline: old, dataset: humaneval}\n- {baseline: old, dataset: humaneval, maxRegression: 0.02}",
         '[1].maxRegression: 0.02 is not text: write it in quotes, "0.02"'),
        ('- {baseline: old, dataset: humaneval, maxRegression: "2"}', '[0].maxRegression: write a fraction from "0.0"'),
        ("- {baseline: old, dataset: humaneval, metric: timeout_rate}", "[0].metric: write a metric whose rise is"),
        ("- {baseline: old, dataset: humaneval, metrik: x}", "[0].metrik: is no field; did you mean metric?"),
        ("- {baseline: nightly, dataset: humaneval}", "[0]: baseline nightly: no such folder"),
        ("- {baseline: other, dataset: humaneval}", "[0]: the baseline has no results of dataset humaneval"),
        ("- {baseline: old, dataset: mbpp_reg}", "[0]: the baseline has no results of dataset mbpp_reg: it has"),
        ("- {a: [}", "policy.yaml:1: "),
    ],
)  # fmt: skip
def test_a_policy_that_cannot_be_used_is_bad_input_that_names_file_and_index(
    evalrun: Command, runs: Path, policy: str, says: str
) -> None:
    (runs / "policy.yaml").write_text(policy)
    done = evalrun("gate", runs / "new", "--policy", runs / "policy.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"evalrun: {runs}/policy.yaml")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_two_recorded_models_are_compared_in_every_format(evalrun: Command, tmp_path: Path) -> None:
    write_run(tmp_path / "qwen", recorded_verdicts(QWEN))
    write_run(tmp_path / "gpt-4", recorded_verdicts(GPT_4))
    texts = {}
    for form in ("text", "markdown", "json", "html"):
        done = evalrun("compare", tmp_path / "qwen", tmp_path / "gpt-4", "--format", form)
        assert (done.returncode, done.stderr) == (0, "")
        texts[form] = done.stdout
    found = json.loads(texts["json"])["datasets"]["humaneval"]
    assert (found["problems"], len(found["lost"]), len(found["gained"])) == (164, 12, 26)
    assert found["mcnemar_p"] == pytest.approx(0.03355, abs=1e-5)
    for form in ("text", "markdown"):
        assert "p = 0.034 (12 solved only by A, 26 only by B)" in texts[form]
    assert texts["markdown"].count("HumanEval/") == 38
    page = Page.of(texts["html"])
    assert page.unbalanced == []
    assert page.text.count("HumanEval/") == 38


def test_what_the_runs_do_not_share_stands_above_the_figures(evalrun: Command, runs: Path) -> None:
    done = evalrun("compare", runs / "old", runs / "new")
    assert '!  containment: ["full"] against ["seccomp"]' in done.stdout
    assert done.stdout.index("containment") < done.stdout.index("accepted@1")
    assert evalrun("compare", runs / "old", runs / "other").returncode == 2


def test_a_name_cannot_steer_a_terminal_or_a_page(evalrun: Command, tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07|<b>`\n# x"
    for name, accepted in (("a", [True]), ("b", [False])):
        write_run(tmp_path / name, verdicts_of(accepted, dataset=evil), run=evil)
    text = evalrun("compare", tmp_path / "a", tmp_path / "b").stdout
    assert "\x1b" not in text
    assert "\x07" not in text
    markdown = evalrun("compare", tmp_path / "a", tmp_path / "b", "--format", "markdown").stdout
    assert "<b>" not in markdown
    assert "\n# x" not in markdown


def test_a_report_is_written_again_and_elsewhere(evalrun: Command, runs: Path) -> None:
    report = runs / "old" / "report.html"
    made = report.read_bytes()
    report.unlink()
    done = evalrun("report", runs / "old")
    assert (done.returncode, done.stdout) == (0, f"report: {report}\n")
    assert report.read_bytes() == made
    assert evalrun("report", runs / "old", "--output", runs / "copy.html").returncode == 0
    assert (runs / "copy.html").read_bytes() == made


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["report", "gone"], "gone: no finished run lies there: summary.json is missing"),
        (["report", "old", "--output", "gone/x.html"], "gone/x.html: cannot be written: No such file or directory"),
        (["report", "memory://x/y"], "memory://x/y: no finished run lies there"),
        (["compare", "old", "gone"], "gone: no finished run lies there"),
        (["compare", "old", "new", "--output", "gone/x"], "--output gone/x: No such file or directory"),
        (["compare", "old", "other"], "the runs share no dataset: old has humaneval and other has mbpp_reg"),
        (["gate", "old", "--policy", "gone.yaml"], "gone.yaml: No such file or directory"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    evalrun: Command, runs: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(runs)
    done = evalrun(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
