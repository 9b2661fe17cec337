"""The commands as a user types them: what they print, write and end with."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from builders.command_line import Command
from builders.results.stored_runs import GPT_4, QWEN, recorded_verdicts, verdicts_of, write_run
from builders.results.web_page import Page


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A directory with the runs `old`, `new` (worse by 30 of 100), `same`, one of another dataset, and one of test
    data.

    The first three say that their humaneval is dev data, which a gate may use.
    """
    dev = {"humaneval": {"role": "dev"}}
    accepted = verdicts_of([True] * 80 + [False] * 20)
    write_run(tmp_path / "test-data", accepted, run="test-data")
    write_run(
        tmp_path / "old", verdicts_of([True] * 80 + [False] * 20), run="old", containment_levels=["full"], datasets=dev
    )
    write_run(
        tmp_path / "new",
        verdicts_of([True] * 50 + [False] * 50),
        run="new",
        containment_levels=["seccomp"],
        datasets=dev,
    )
    write_run(tmp_path / "same", accepted, run="same", datasets=dev)
    write_run(tmp_path / "other", verdicts_of([True], dataset="mbpp_reg"))
    return tmp_path


def a_policy(directory: Path, *gates: dict[str, Any]) -> Path:
    path = directory / "policy.yaml"
    path.write_text(json.dumps([{"baseline": "old", "dataset": "humaneval"} | gate for gate in gates]))
    return path


@pytest.mark.parametrize(
    ("run", "gates", "code", "words"),
    [
        ("same", [{"maxRegression": "0.05"}], 0, ["PASS"]),
        ("same", [{}], 5, ["INCONCLUSIVE"]),  # equal on 100 problems is not equal for certain
        ("new", [{"maxRegression": "0.02"}], 4, ["FAIL"]),
        ("new", [{"maxRegression": "0.3"}], 5, ["INCONCLUSIVE"]),
        ("new", [{"maxRegression": "0.5"}], 0, ["PASS"]),
        ("new", [{"maxRegression": "0.5"}, {"maxRegression": "0.3"}], 5, ["PASS", "INCONCLUSIVE"]),
        ("new", [{"maxRegression": "0.3"}, {}, {"maxRegression": "0.5"}], 4, ["INCONCLUSIVE", "FAIL", "PASS"]),
    ],
)
def test_gate_exit_code_is_that_of_the_worst_decision(
    evalrun_here: Command, runs: Path, run: str, gates: list[dict[str, str]], code: int, words: list[str]
) -> None:
    done = evalrun_here("gate", runs / run, "--policy", a_policy(runs, *gates), "--format", "json")
    assert (done.returncode, done.stderr) == (code, "")
    assert [decision["decision"] for decision in json.loads(done.stdout)] == words


@pytest.mark.parametrize("arguments", [[], ["--sample-size"]])
def test_gate_on_test_data_is_refused_unless_the_policy_allows_the_dataset(
    evalrun_here: Command, runs: Path, arguments: list[str]
) -> None:
    """The run recorded no role: humaneval is known to be test data."""
    policy = a_policy(runs, {"maxRegression": "0.5"})
    done = evalrun_here("gate", runs / "test-data", "--policy", policy, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        f"{policy}: [0]: 'humaneval' is test data, for the end of a phase and not for tuning: gate a dev" in done.stderr
    )
    a_policy(runs, {"maxRegression": "0.5", "allowTestRole": ["humaneval"]})
    assert evalrun_here("gate", runs / "test-data", "--policy", policy, *arguments).returncode == 0


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json"])
@pytest.mark.parametrize("more", [[], ["new"]])
def test_a_comparison_shows_each_datasets_role(evalrun_here: Command, runs: Path, form: str, more: list[str]) -> None:
    places = [runs / name for name in ("old", "same", *more)]
    shown = evalrun_here("compare", *places, "--format", form).stdout
    if form == "json":
        assert json.loads(shown)["datasets"]["humaneval"]["role"] == "dev"
    else:
        assert "humaneval (role: dev)" in (Page.of(shown).text if form == "html" else shown)


@pytest.mark.parametrize("option", ["--trust", "--identity", "--issuer", "--trust-config", "--revocations"])
def test_gate_with_trust_options_without_require_attested_is_refused(
    evalrun_here: Command, runs: Path, option: str
) -> None:
    policy = a_policy(runs, {"maxRegression": "0.5"})
    done = evalrun_here("gate", runs / "new", "--policy", policy, option, policy)
    assert (done.returncode, done.stdout) == (2, "")
    assert "they say nothing without --require-attested: add it" in done.stderr


def test_gates_are_shown_in_every_format(evalrun_here: Command, runs: Path) -> None:
    policy = a_policy(runs, {"maxRegression": "0.5"}, {"maxRegression": "0.02", "metric": "pass_ratio_mean"})
    for form in ("text", "markdown", "json", "html"):
        done = evalrun_here("gate", runs / "new", "--policy", policy, "--format", form)
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
        ("- {dataset: humaneval}", "[0].baseline: write exactly one of baseline (an earlier run) and anchor"),
        ("- {baseline: old, dataset: humaneval}\n- {baseline: old, dataset: humaneval, maxRegression: 0.02}",
         '[1].maxRegression: 0.02 is not text: write it in quotes, "0.02"'),
        ('- {baseline: old, dataset: humaneval, maxRegression: "2"}', '[0].maxRegression: write a fraction from "0.0"'),
        ("- {baseline: old, dataset: humaneval, metric: nonsense}", "[0].metric: write "),
        ("- {baseline: old, dataset: humaneval, metrik: x}", "[0].metrik: is no field; did you mean metric?"),
        ("- {baseline: nightly, dataset: humaneval}", "[0]: baseline nightly: no such directory"),
        ("- {baseline: other, dataset: humaneval}", "[0]: the baseline has no results of dataset humaneval"),
        ("- {baseline: old, dataset: mbpp_reg}", "[0]: the candidate has no results of dataset mbpp_reg: it has"),
        ("- {a: [}", "policy.yaml:1: "),
    ],
)  # fmt: skip
def test_a_policy_that_cannot_be_used_is_bad_input_that_names_file_and_index(
    evalrun_here: Command, runs: Path, policy: str, says: str
) -> None:
    (runs / "policy.yaml").write_text(policy)
    done = evalrun_here("gate", runs / "new", "--policy", runs / "policy.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"evalrun: {runs}/policy.yaml")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_two_recorded_models_are_compared_in_every_format(evalrun_here: Command, tmp_path: Path) -> None:
    write_run(tmp_path / "qwen", recorded_verdicts(QWEN))
    write_run(tmp_path / "gpt-4", recorded_verdicts(GPT_4))
    texts = {}
    for form in ("text", "markdown", "json", "html"):
        done = evalrun_here("compare", tmp_path / "qwen", tmp_path / "gpt-4", "--format", form)
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


def test_comparison_shows_unshared_conditions_above_the_metrics(evalrun_here: Command, runs: Path) -> None:
    done = evalrun_here("compare", runs / "old", runs / "new")
    assert '!  containment: ["full"] against ["seccomp"]' in done.stdout
    assert done.stdout.index("containment") < done.stdout.index("pass@1")
    assert evalrun_here("compare", runs / "old", runs / "other").returncode == 2


def test_a_name_cannot_steer_a_terminal_or_a_page(evalrun_here: Command, tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07|<b>`\n# x"
    for name, accepted in (("a", [True]), ("b", [False])):
        write_run(tmp_path / name, verdicts_of(accepted, dataset=evil), run=evil)
    text = evalrun_here("compare", tmp_path / "a", tmp_path / "b").stdout
    assert "\x1b" not in text
    assert "\x07" not in text
    markdown = evalrun_here("compare", tmp_path / "a", tmp_path / "b", "--format", "markdown").stdout
    assert "<b>" not in markdown
    assert "\n# x" not in markdown


def test_report_is_recreated_identically_and_written_to_a_given_file(evalrun_here: Command, runs: Path) -> None:
    report = runs / "old" / "report.html"
    made = report.read_bytes()
    report.unlink()
    done = evalrun_here("report", runs / "old")
    assert (done.returncode, done.stdout) == (0, f"report: {report}\n")
    assert report.read_bytes() == made
    assert evalrun_here("report", runs / "old", "--output", runs / "copy.html").returncode == 0
    assert (runs / "copy.html").read_bytes() == made


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["report", "gone"], "gone: no finished run there: summary.json is missing"),
        (["report", "old", "--output", "gone/x.html"], "gone/x.html: cannot be written: No such file or directory"),
        (["report", "memory://x/y"], "memory://x/y: no finished run there"),
        (["compare", "old", "gone"], "gone: no finished run there"),
        (["compare", "old", "new", "--output", "gone/x"], "--output gone/x: No such file or directory"),
        (["compare", "old", "other"], "the runs share no dataset: old has humaneval and other has mbpp_reg"),
        (["gate", "old", "--policy", "gone.yaml"], "gone.yaml: No such file or directory"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    evalrun_here: Command, runs: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(runs)
    done = evalrun_here(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_several_runs_are_compared_in_every_format(evalrun_here: Command, runs: Path) -> None:
    for form in ("text", "markdown", "json", "html"):
        done = evalrun_here("compare", runs / "old", runs / "new", runs / "same", "--all-pairs", "--format", form)
        assert (done.returncode, done.stderr) == (0, "")
        shown = Page.of(done.stdout).text if form == "html" else done.stdout
        assert "Holm" in shown
        assert "\\n" not in shown or form == "json"
        assert "Succeeded" in shown
        if form == "json":
            found = json.loads(done.stdout)
            assert found["correction"] == {"method": "Holm", "metric": "accepted_at_1", "tests": 3}
            assert [each["lost"] for each in found["datasets"]["humaneval"]["contrasts"]] == [30, 0, 0]
            assert len(found["datasets"]["humaneval"]["flips"]) == 30
            continue
        for part in ("B - A", "C - A", "C - B", "-30.0 pt", "+30.0 pt", "80.0 %", "containment: "):
            assert part in shown, (form, part)
        if form == "html":
            assert Page.of(done.stdout).unbalanced == []


def test_a_name_in_several_runs_cannot_steer_a_terminal_or_a_page(evalrun_here: Command, tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07|<b>`\n# x"
    for name, accepted in (("a", [True]), ("b", [False]), ("c", [False])):
        write_run(tmp_path / name, verdicts_of(accepted, dataset=evil), run=evil)
    places = [tmp_path / name for name in "abc"]
    text = evalrun_here("compare", *places).stdout
    assert "\x1b" not in text
    assert "\x07" not in text
    for form in ("markdown", "html"):
        shown = evalrun_here("compare", *places, "--format", form).stdout
        assert "|<b>`" not in shown
        if form == "markdown":
            assert "\n# x" not in shown


@pytest.mark.parametrize(
    ("places", "flags", "says"),
    [
        (["old"], [], "is one run: name at least two, the baseline first"),
        (["old", "new", "old"], [], "named twice"),
        (["old", "new", "other"], [], "the runs share no dataset: "),
        (["old", "nothing", "new"], [], "nothing"),
    ],
)
def test_runs_that_cannot_be_compared_are_bad_input(
    evalrun_here: Command, runs: Path, places: list[str], flags: list[str], says: str
) -> None:
    done = evalrun_here("compare", *(runs / place for place in places), *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_gate_sample_size_of_a_pilot_names_the_number_of_problems_needed(evalrun_here: Command, runs: Path) -> None:
    verdicts = verdicts_of([True] * 75 + [False] * 20 + [True] * 5)  # 5 of 100 lost, 5 gained
    write_run(runs / "pilot", verdicts, datasets={"humaneval": {"role": "dev"}})
    policy = a_policy(runs, {"maxRegression": "0.05"}, {"maxRegression": "0"})
    done = evalrun_here("gate", runs / "pilot", "--policy", policy, "--sample-size")
    assert (done.returncode, done.stderr) == (0, "")
    some, none = done.stdout.splitlines()
    variance = 12 / 101  # ten flips, and one more each way, over 102 problems
    reach = (2.241403 + 0.841621) * math.sqrt(variance)  # two gates share the chance of an error
    needed = next(n for n in range(1, 10_000) if reach / math.sqrt(n) + 1.5 / n <= 0.05)  # 1.5: an unseen loss
    assert f"with maxRegression 0.05, about {needed} problems are needed; 100 problems allow" in some
    assert "with maxRegression 0, no number of problems is enough" in none
    refused = evalrun_here("gate", runs / "pilot", "--policy", policy, "--sample-size", "--format", "json")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--sample-size: is text only" in refused.stderr


def test_pooled_seeds_of_one_configuration_are_one_column(evalrun_here: Command, tmp_path: Path) -> None:
    for model, accepted in (("base", [30, 50]), ("sft", [60, 60])):
        for seed, right in enumerate(accepted, 1):
            verdicts = verdicts_of([place < right for place in range(100)])
            spec = {"model": {"path": model}, "protocol": {"seed": seed}}
            write_run(tmp_path / f"{model}-{seed}", verdicts, run=f"{model}-{seed}", spec=spec, responses=None)
    places = [tmp_path / name for name in ("base-1", "base-2", "sft-1", "sft-2")]
    text = evalrun_here("compare", *places, "--pool-seeds").stdout
    assert "(base-1 · base · seeds 1, 2)" in text
    assert "40.0 % ± 14.1" in text
    assert "+20.0 pt" in text
    alone = evalrun_here("compare", *places[:2], "--pool-seeds")
    assert alone.returncode == 2
    assert "--pool-seeds: all runs have the same configuration" in alone.stderr
