"""What a run will take: a pure function of the spec, the answers to draw and an earlier run's rates."""

import dataclasses
from pathlib import Path

import pytest
from builders.operator.world import evalrun
from builders.results.samples import sample_result

from evalrun_cli.run_plan.command import Count, count_answers, plan_lines
from evalrun_cli.run_plan.estimate import Capacity, estimate
from evalrun_cli.run_plan.rates import Answers, Rates, measure_rates
from evalrun_results.samples import SampleResult


def answers(
    count: int, *, dataset: str = "humaneval", every: float = 1.0, judged_after: float = 0.5
) -> list[SampleResult]:
    """Make answers one after another: each of 100 tokens takes `every` seconds, and half a CPU second to judge."""
    made = []
    for number in range(count):
        result = sample_result(number, dataset=dataset, gen_seconds=every, cpu_time=0.5)
        started = 1000.0 + number * every
        made.append(dataclasses.replace(result, started_at=started, judged_at=started + every + judged_after))
    return made


def rates(results: list[SampleResult], *, elapsed: float, servers: int = 1, slots: int | None = 2) -> Rates:
    found = measure_rates(results, elapsed=elapsed, servers=servers, slots=slots)
    assert found is not None
    return found


def test_rates_of_a_generation_bound_run_separate_start_and_generation() -> None:
    found = rates(answers(100), elapsed=130.0)
    assert (found.generating_seconds, found.working_seconds, found.start_seconds) == (100.0, 100.5, 29.5)
    assert not found.judge_decided
    assert found.find_answers("humaneval").tokens == 100
    assert found.find_answers("humaneval").judge_seconds == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("drawn", "capacity", "wall", "gpu_hours"),
    [
        ({"humaneval": 100}, Capacity(1, 2, 0), 129.5, 0.0),
        ({"humaneval": 400}, Capacity(1, 2, 0), 429.5, 0.0),
        ({"humaneval": 400}, Capacity(4, 2, 8), 129.5, 8 * 129.5 / 3600),
        ({"humaneval": 4000}, Capacity(100, 2, 0), 29.5 + 1000, 0.0),  # two slots, half a CPU second each
        ({"humaneval": 4000}, Capacity(100, 20, 0), 29.5 + 100, 0.0),
        ({"another": 200}, Capacity(1, 2, 0), 229.5, 0.0),
    ],
)
def test_estimated_wall_time_scales_with_servers_or_slots(
    drawn: dict[str, int], capacity: Capacity, wall: float, gpu_hours: float
) -> None:
    found = estimate(drawn, rates(answers(100), elapsed=130.0), capacity)
    assert found.wall_seconds == pytest.approx(wall)
    assert found.gpu_hours == pytest.approx(gpu_hours)


def test_rates_of_a_judge_bound_run_give_its_judging_time() -> None:
    slow = rates(answers(100, every=0.01, judged_after=50.0), elapsed=61.0)
    assert slow.judge_decided
    assert estimate({"humaneval": 200}, slow, Capacity(1, 4, 0)).judging_seconds == pytest.approx(51.0, rel=0.01)


def test_the_slowest_program_is_waited_for_once_however_long_the_run() -> None:
    quick = answers(99, every=0.01, judged_after=0.0)
    (slow,) = answers(1, every=0.01, judged_after=9.0)
    found = rates([*quick, slow], elapsed=10.0)
    assert found.working_seconds == pytest.approx(9.01)
    assert found.working_tail == pytest.approx(9.01 - 1.0, abs=0.02)
    assert estimate({"humaneval": 1000}, found, Capacity(1, 2, 0)).judging_seconds == pytest.approx(10 + 8, abs=0.2)


def test_estimate_scales_with_tokens_or_with_answers_without_token_counts() -> None:
    long = [dataclasses.replace(each, output_tokens=300) for each in answers(50, dataset="long")]
    shorter = [dataclasses.replace(each, started_at=each.started_at + 50) for each in answers(50) if each.started_at]
    both = rates([*long, *shorter], elapsed=100.0)
    assert estimate({"long": 100}, both, Capacity(1, 2, 0)).generating_seconds == pytest.approx(150.0)
    uncounted = [dataclasses.replace(each, output_tokens=None) for each in [*long, *shorter]]
    by_answers = rates(uncounted, elapsed=100.0)
    assert estimate({"long": 100}, by_answers, Capacity(1, 2, 0)).generating_seconds == pytest.approx(100.0)


def test_a_run_without_times_gives_no_rates() -> None:
    made_elsewhere = [dataclasses.replace(each, started_at=None, judged_at=None) for each in answers(3)]
    assert measure_rates(made_elsewhere, elapsed=1.0, servers=1, slots=None) is None


def test_pods_are_those_that_the_operator_makes_with_their_requests() -> None:
    run = evalrun({"spec.judge": {"sandbox": {"minReplicas": 2, "maxReplicas": 6, "slots": 8}}})
    lines = "\n".join(plan_lines(run, [Count("humaneval", 164)], None, "", local=False))
    assert "sandbox      2 to 6       8      10,240     0" in lines
    assert "ray worker" in lines
    assert "unknown: wall time and GPU hours: name an earlier run" in lines


def test_plan_with_uncountable_answers_reports_answers_and_time_as_unknown() -> None:
    run = evalrun(rollout=False)
    counted = [Count("humaneval", 164), Count("contests", None, "a volume can be read only in its cluster")]
    lines = "\n".join(plan_lines(run, counted, rates(answers(10), elapsed=20.0), "outputs/base", local=True))
    assert "answers: humaneval 164, contests unknown" in lines
    assert "unknown: the answers of contests: a volume can be read only in its cluster" in lines
    assert "unknown: wall time and GPU hours, since not all answers can be counted" in lines


def test_answers_are_problems_times_samples_and_noise_floor_repeats() -> None:
    changes = {
        "spec.datasets": [
            {"name": "demo", "source": "builtin:demo", "maxProblems": 5},
            {"name": "own", "source": "pvc://x/y"},
        ],
        "spec.protocol": {"name": "EVAL@k", "samples": 4, "temperature": "0.8", "k": [1], "noiseFloorRepeats": 1},
    }
    run = evalrun(changes, rollout=False)
    counts = count_answers(run.spec, Path(), {})
    assert [(each.dataset, each.answers) for each in counts] == [("demo", 40), ("own", None)]
    assert [each.answers for each in count_answers(run.spec, Path(), {"own": 10})] == [40, 80]


def test_answers_that_depend_on_how_others_end_are_unknown() -> None:
    run = evalrun({"spec.protocol": {"name": "EVAL@turns", "turns": {"limit": 3}}}, rollout=False)
    (count,) = count_answers(run.spec, Path(), {"humaneval": 164})
    assert (count.answers, count.why_unknown) == (None, "EVAL@turns asks again as often as answers fail")


@pytest.mark.parametrize(
    ("answers_drawn", "replicas", "generating", "gpu_seconds"),
    [
        (164 * 4 * 8, 1, 59.05, 178.0),
        (164 * 4 * 8, 2, 30.33, 261.0),
    ],
)
def test_the_estimate_is_within_a_quarter_of_recorded_runs_on_gpus(
    answers_drawn: int, replicas: int, generating: float, gpu_seconds: float
) -> None:
    """Predict benchmarks/README.md's longer runs on one and two H200 GPUs from its short run on one."""
    short = Rates({"prompts": Answers(164 * 4, 256.0, 0.0)}, 7.85, 7.85, 114.0, 1, 2)
    found = estimate({"prompts": answers_drawn}, short, Capacity(replicas, 2, replicas))
    assert found.generating_seconds == pytest.approx(generating, rel=0.25)
    assert found.gpu_hours * 3600 == pytest.approx(gpu_seconds, rel=0.25)
