import json
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from builders.results.samples import sample_result, verdict, with_changes
from builders.results.stored_runs import a_gate, samples_of, verdicts_of, write_run
from builders.results.web_page import Page

from evalrun_results.comparisons.gate import make_undecided_result
from evalrun_results.metrics.accumulator import MetricOptions
from evalrun_results.outputs.qa_logs import QaOptions
from evalrun_results.outputs.writer import OutputPlan, write_outputs
from evalrun_results.report.document import ReportContent, render_report
from evalrun_results.samples import JsonObject, SampleResult
from evalrun_results.stored_run import StoredRun

EVIL = (
    "</pre></style></script><script>alert(1)</script><img src=//evil onerror='alert(2)'>\"><svg/onload=alert(3)> &amp;"
)


def report_of(directory: Path, results: Iterable[SampleResult], **run_info: object) -> Page:
    content = (write_run(directory, results, **run_info) / "report.html").read_text(encoding="utf-8")
    found = Page.of(content)
    assert found.unbalanced == []
    return found


def hostile_run() -> list[SampleResult]:
    rows = []
    for place, status in enumerate(
        ["success", "wrong_answer", "runtime_error", "compile_error", "timeout", "api_error"]
    ):
        made = verdict([status])
        made.disagreeing_comparators.append(EVIL)
        test = made.tests[0]
        test.reason = test.stderr.text = test.stdout.text = test.input.text = test.expected_output.text = EVIL
        rows.append(
            with_changes(
                sample_result(f"{EVIL}{place}", 0, dataset=f"set {EVIL}"),
                response=f"{EVIL}\n```python\nx = '{EVIL}' # {EVIL}\n```\n{EVIL}",
                prompt=f"def f():\n    {EVIL}",
                ground_truth={"test": EVIL} if place % 2 else {"inputs": [EVIL]},
                verdict=made,
                model=EVIL,
                not_judged_reason=EVIL,
            )
        )
    return rows


def evil_info() -> Mapping[str, object]:
    spec = {"model": {"path": EVIL}, "protocol": {"name": EVIL, "temperature": EVIL, "samples": EVIL}}
    return {
        "run": EVIL, "spec": spec, "responses": [EVIL], "versions": {EVIL: EVIL}, "datasets": {EVIL: {EVIL: EVIL}},
        "replicas": [{"address": EVIL, "models": [EVIL]}], "judges": {EVIL: {"backend": EVIL}},
        "containment_levels": [EVIL], "started_at": EVIL, "ended_at": EVIL,
    }  # fmt: skip


def test_texts_of_a_hostile_run_never_become_markup(tmp_path: Path) -> None:
    plan = OutputPlan(
        evil_info(),
        MetricOptions(),
        QaOptions(0.0, 1),
        lambda _: [make_undecided_result(a_gate(baseline=f"s3://{EVIL}"), EVIL)],
    )
    write_outputs(hostile_run(), str(tmp_path), plan)
    content = (tmp_path / "report.html").read_text()
    page = Page.of(content)
    assert page.unbalanced == []
    assert set(page.elements) <= {
        "html", "head", "meta", "title", "style", "body", "div", "h1", "h2", "h3", "h4", "p", "b", "small", "span",
        "pre", "code", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "svg", "g", "rect",
        "line", "text", "ul", "li", "main",
    }  # fmt: skip
    assert [name for name in page.attributes if name.startswith("on") or name in {"style", "src", "href"}] == []
    assert "alert(1)" in page.text  # it is there, to be read


def test_report_loads_no_address_and_its_policy_forbids_all(tmp_path: Path) -> None:
    page = report_of(tmp_path, hostile_run())
    content = (tmp_path / "report.html").read_text()
    assert page.addresses == []
    assert "url(" not in content.split("</style>")[0]
    assert "@import" not in content.split("</style>")[0]
    assert (
        'Content-Security-Policy" content="default-src &#x27;none&#x27;; style-src &#x27;unsafe-inline&#x27;' in content
    )


def test_the_headline_shows_each_dataset_with_interval_and_coverage(tmp_path: Path) -> None:
    rows = [*verdicts_of([True] * 30 + [False] * 10), *verdicts_of([True, None], dataset="mbpp_reg")]
    page = report_of(tmp_path, rows, run="phase0", spec={"model": {"path": "org/model"}})
    text = page.text.replace("\u00a0", " ")
    for part in ("phase0", "Degraded", "75.0 %", "59.8 % to 85.8 %", "40 of 40 judged", "1 of 2 judged",
                 "pass@1 lies from 50.0 % to 100.0 %", "1 answers could not be judged"):  # fmt: skip
        assert part in text, part


def test_the_headline_shows_the_role_that_the_run_recorded(tmp_path: Path) -> None:
    rows = [*verdicts_of([True]), *verdicts_of([True], dataset="mine"), *verdicts_of([True], dataset="mbpp_reg")]
    datasets = {"humaneval": {"role": "dev"}, "mine": {"role": ""}}
    text = report_of(tmp_path, rows, datasets=datasets).text
    assert "humaneval1 problems, role: dev" in text
    assert "mine1 problems100" in text
    assert "mbpp_reg1 problems, role: dev" in text, "recorded nothing: the well-known name says it"


def test_headline_shows_the_checkpoint_of_the_run(tmp_path: Path) -> None:
    lineage = {"schedule": "nightly", "step": 120, "phase": "grpo", "parent": "nightly-0123456789"}
    spec = {"model": {"path": "s3://t/global_step_120"}, "lineage": lineage}
    page = report_of(tmp_path / "checkpoint", verdicts_of([True]), spec=spec)
    assert "Checkpoint: step 120 · phase grpo · schedule nightly · after nightly-0123456789" in page.text
    assert "Checkpoint:" not in report_of(tmp_path / "model", verdicts_of([True])).text


def test_headline_shows_the_protocols_metrics_and_excluded_problems(tmp_path: Path) -> None:
    results = [sample_result(f"p{problem}", sample) for problem in range(4) for sample in range(3)]
    results[:3] = [sample_result("p0", sample, ["wrong_answer"] if sample else None) for sample in range(3)]
    plan = OutputPlan({}, MetricOptions(ks=(1, 3), budget=True), QaOptions(0.8, 1))
    write_outputs(results, str(tmp_path), plan)
    text = Page.of((tmp_path / "report.html").read_text()).text.replace("\u00a0", " ")
    assert "pass@1Solved within budgetpass@3Runs to its end" in text
    told = "100.0 %35.3 % to 100.0 %; 1 problems left out"  # p0 may yet be solved, and two samples are none of three
    assert told + told in text


@pytest.mark.parametrize("tests", [1, 2])
def test_the_pass_ratio_is_shown_only_where_an_answer_has_several_tests(tests: int, tmp_path: Path) -> None:
    results = [sample_result("p0", 0, ["success"] * tests), sample_result("p1", 0, ["wrong_answer"])]
    write_outputs(results, str(tmp_path), OutputPlan({}, MetricOptions(), QaOptions(1.0, 1)))
    text = Page.of((tmp_path / "report.html").read_text()).text
    assert ("pass@1Pass ratio" in text) == (tests == 2)
    assert "pass@1" in text


def test_failed_assertion_is_shown_whole_under_the_heading_assertion(tmp_path: Path) -> None:
    results = [sample_result("p0", 0, ["wrong_answer"])]
    result = with_changes(results[0], ground_truth={"test": "def check(f): ...", "entry_point": "f"})
    write_outputs([result], str(tmp_path), OutputPlan({}, MetricOptions(), QaOptions(1.0, 1)))
    page = (tmp_path / "report.html").read_text()
    assert "First failed test: wrong answer" in Page.of(page).text
    assert "case 0" not in Page.of(page).text
    assert '<div class="case"><h4>Assertion</h4>' in page


def test_report_shows_acceptance_by_turn_and_the_last_answers(tmp_path: Path) -> None:
    chat = tuple({"role": role, "content": f"{role} says"} for role in ("user", "assistant", "user"))
    first = [sample_result(f"p{problem}", 0, ["wrong_answer"]) for problem in range(4)]
    second = [
        with_changes(
            sample_result(f"p{problem}", 0, ["success"] if problem else ["wrong_answer"]), turn=1, messages=chat
        )
        for problem in range(4)
    ]
    results = [result for pair in zip(first, second, strict=True) for result in pair]
    busy: JsonObject = {"replicas": 1, "busy_seconds": 30.0, "idle_seconds": 10.0, "idle_share": 0.25}
    plan = OutputPlan({}, MetricOptions(turns=2), QaOptions(0.0, 1), generation=busy)
    write_outputs(results, str(tmp_path), plan)
    text = Page.of((tmp_path / "report.html").read_text()).text.replace("\u00a0", " ")
    assert "pass@1Recovery rateRuns to its end" in text
    assert "By turnTurnAccepted so farRecovered of those that failed at first" in text
    assert "Turns up to acceptance, in the mean of those that were accepted: 2" in text
    assert "p3 · turn 2" in text
    assert "25.0 % of the time between their first and last request (10.0 s in all)" in text


def test_warnings_are_shown_above_the_metrics(tmp_path: Path) -> None:
    empty = [sample_result(number, 0, ["wrong_answer"], empty=True) for number in range(3)]
    found = report_of(tmp_path, empty).text
    assert "3 of 3 answers hold no program" in found
    assert found.index("hold no program") < found.index("pass@1")


def test_report_of_an_empty_run_says_that_there_are_no_results(tmp_path: Path) -> None:
    page = report_of(tmp_path, [], run="nothing")
    assert "The run has no results" in page.text


@pytest.mark.parametrize("statuses", [None, ["api_error"]])
def test_a_run_that_was_not_judged_has_no_figures_but_a_page(tmp_path: Path, statuses: list[str] | None) -> None:
    rows = [sample_result(place, 0, statuses, output_tokens=None, gen_seconds=None) for place in range(30)]
    page = report_of(tmp_path, rows)
    text = page.text.replace("\u00a0", " ")
    assert "0 of 30 judged; pass@1 lies from 0.0 % to 100.0 %" in text
    assert "not known" in text
    assert "nan" not in text
    assert "None" not in text


def test_slow_problems_flaky_ones_and_disagreements_are_listed(tmp_path: Path) -> None:
    rows = [sample_result(f"slow/{place}", 0, cpu_time=place, gen_seconds=90 - place) for place in range(1, 31)]
    rows += samples_of([(4, 2), (4, 4), (4, 1)], dataset="many")
    rows += [sample_result("slow/7", 0, ["timeout"], repeat=1), sample_result("slow/8", 0, repeat=1)]
    made = verdict(["wrong_answer"])
    made.disagreeing_comparators.extend(["exact", "verl"])
    rows.append(with_changes(sample_result("odd/1"), verdict=made))
    page = report_of(tmp_path, rows)
    content = (tmp_path / "report.html").read_text()
    judging = content.split("Slowest to judge")[1].split("</table>")[0]
    assert ["slow/30" in judging, "slow/21" in judging, "slow/20" in judging] == [True, True, False]
    flaky = content.split("Flakiest")[1].split("</table>")[0]
    assert "slow/7" in flaky
    assert "slow/8" not in flaky
    assert "1 of 1 repeats differ" in flaky
    many = content.split("Flakiest")[2].split("</table>")[0]
    assert many.index("P/00000") < many.index("P/00002")
    assert "P/00001" not in many
    assert "odd/1" in content.split("Comparators that would have decided otherwise")[1]
    assert page.elements["svg"] >= 8


def test_the_pages_size_does_not_grow_with_the_run(tmp_path: Path) -> None:
    sizes = []
    for problems in (300, 3_000):
        rows = (sample_result(place, 0, ["success"] if place % 3 else ["timeout"]) for place in range(problems))
        write_run(tmp_path / str(problems), rows)
        sizes.append((tmp_path / str(problems) / "report.html").stat().st_size)
    assert sizes[1] < 1.02 * sizes[0]


def test_long_texts_are_cut_and_say_so(tmp_path: Path) -> None:
    row = with_changes(sample_result(), response="x" * 2_000_000, prompt="y" * 50_000)
    page = report_of(tmp_path, [row])
    assert "[1988000 more characters]" in page.text
    assert (tmp_path / "report.html").stat().st_size < 100_000


def test_a_report_made_again_is_the_same(tmp_path: Path) -> None:
    rows = [*hostile_run(), *samples_of([(3, 1), (3, 2)]), sample_result(7, 0, ["timeout"], repeat=1)]
    write_run(tmp_path, rows, run="again", versions={"evalrun": "0.1.0"})
    content = StoredRun.open(str(tmp_path)).report()
    assert render_report(content) == (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "summary",
    [{}, {"datasets": {"d": {}}}, {"datasets": {"d": {"metrics": {"accepted_at_1": {"value": "high"}}, "counts": []}}}],
)
def test_a_summary_of_another_shape_gives_a_page_with_gaps(summary: dict[str, object]) -> None:
    assert Page.of(render_report(ReportContent(json.loads(json.dumps(summary)), {}))).unbalanced == []


def test_a_screen_reader_finds_landmark_headings_and_columns(tmp_path: Path) -> None:
    write_outputs(hostile_run(), str(tmp_path), OutputPlan(evil_info(), MetricOptions(), QaOptions(0.0, 1)))
    content = (tmp_path / "report.html").read_text()
    levels = [int(level) for level in re.findall(r"<h([1-6])", content)]
    assert levels[0] == 1
    assert max(after - before for before, after in pairwise(levels)) == 1
    heads = re.findall(r"<th\b[^>]*>", content)
    assert heads
    assert all(' scope="col"' in head for head in heads)
    assert content.count("<main>") == 1
    assert 'id="run"' in content


def test_report_shows_metrics_by_difficulty_tag_seed_and_single_test(tmp_path: Path) -> None:
    results = [
        with_changes(
            sample_result(number, sample, ["success", "success" if sample else "timeout"]),
            difficulty="HARD" if number else "EASY",
            tags=("graphs",),
        )
        for number in range(3)
        for sample in range(2)
    ]
    plan = OutputPlan({}, MetricOptions(), QaOptions(0.0, 1), samples_per_seed=1)
    write_outputs(results, str(tmp_path), plan)
    page = Page.of((tmp_path / "report.html").read_text())
    assert page.unbalanced == []
    words = "".join(page.text.split())
    assert re.search(r"BydifficultyProblemsJudgedpass@1.*EASY1250\.0%.*HARD2450\.0%", words)
    assert re.search(r"Bytag.*graphs3650\.0%", words)
    assert re.search(r"Byseed,2seeds.*pass@150\.0%70\.7%0\.0%,100\.0%", words)
    assert re.search(r"How12singletestsended.*success975\.0%.*timeout325\.0%", words)
