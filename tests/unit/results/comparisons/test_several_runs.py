import numpy as np
import pytest
from builders.results.stored_runs import CODELLAMA, GPT_4, QWEN, facts_of, recorded_verdicts, samples_of, verdicts_of
from scipy.stats import permutation_test
from statsmodels.stats.multitest import multipletests

from evalrun_results.comparisons.comparison import RunFacts, compare_runs
from evalrun_results.comparisons.multiple_tests import holm, sign_flip_p
from evalrun_results.comparisons.several import SeveralRuns, compare_several, make_configurations


def one_each(*runs: RunFacts, all_pairs: bool = False) -> SeveralRuns:
    return compare_several(make_configurations(runs, pool_seeds=False), all_pairs=all_pairs)


def seeded(seed: int, accepted: list[bool | None], *, model: str = "m", **changes: object) -> RunFacts:
    protocol = {"seed": seed, "temperature": "0.8"}
    info: dict[str, object] = {
        "run": f"{model}-{seed}",
        "spec": {"model": {"path": model}, "protocol": protocol},
        "responses": None,
    }
    return facts_of(verdicts_of(accepted), place=f"{model}-{seed}", **(info | changes))


@pytest.mark.parametrize("p_values", [[], [0.03], [0.01, 0.04, 0.03], [0.5, 0.6, 0.9], [0.02, 0.02, 1.0, 0.0001]])
def test_holm_adjusts_as_statsmodels_does(p_values: list[float]) -> None:
    expected = multipletests(p_values, method="holm")[1] if p_values else []
    assert holm(p_values) == pytest.approx(list(expected))


@pytest.mark.parametrize("seed", range(3))
def test_the_sign_flip_test_agrees_with_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    differences = rng.integers(-3, 5, 14) / 7.0  # 2^14 sign vectors: scipy takes them all
    exact = permutation_test(
        (differences,), lambda values, axis: values.sum(axis=axis), permutation_type="samples", n_resamples=np.inf,
        vectorized=True,
    ).pvalue  # fmt: skip
    assert sign_flip_p(differences) == pytest.approx(exact, abs=0.006)


def test_sign_flip_test_treats_differences_equal_up_to_rounding_as_equal() -> None:
    assert sign_flip_p(np.array([1 / 3, 1 - 2 / 3, 0.1 + 0.7 / 3, 0.0])) == pytest.approx(0.25)


def test_recorded_models_have_the_p_values_of_their_pairs_corrected_over_all() -> None:
    runs = [facts_of(recorded_verdicts(name)) for name in (CODELLAMA, QWEN, GPT_4)]
    found = one_each(*runs, all_pairs=True)
    (dataset,) = found.datasets
    pairs = [compare_runs(runs[a], runs[b]).datasets[0] for a, b in ((0, 1), (0, 2), (1, 2))]
    assert [(each.first, each.second) for each in dataset.contrasts] == [("A", "B"), ("A", "C"), ("B", "C")]
    assert [each.p for each in dataset.contrasts] == [pair.mcnemar_p for pair in pairs]
    assert [(each.lost, each.gained) for each in dataset.contrasts] == [(len(p.lost), len(p.gained)) for p in pairs]
    assert [each.differences for each in dataset.contrasts] == [pair.differences for pair in pairs]
    expected = multipletests([pair.mcnemar_p for pair in pairs], method="holm")[1]
    assert [each.adjusted_p for each in dataset.contrasts] == pytest.approx(list(expected))
    assert dataset.problems == 164 == dataset.solved_by_all + dataset.solved_by_none + len(dataset.flips)


def test_one_baseline_is_compared_with_each_other_run_and_the_family_spans_datasets() -> None:
    run = facts_of([*verdicts_of([True] * 5 + [False] * 35), *verdicts_of([True] * 40, dataset="mbpp_reg")])
    better = facts_of([*verdicts_of([True] * 15 + [False] * 25), *verdicts_of([True] * 40, dataset="mbpp_reg")])
    found = one_each(run, better, better)
    assert [[each.second for each in dataset.contrasts] for dataset in found.datasets] == [["B", "C"], ["B", "C"]]
    assert found.family == 4
    first = found.datasets[0].contrasts[0]
    assert (first.p, first.adjusted_p) == (2 / 2**10, 4 * 2 / 2**10)


def test_only_problems_judged_in_every_run_are_compared() -> None:
    runs = [
        facts_of(verdicts_of(each)) for each in ([True, True, None], [True, False, True], [False, True, True, True])
    ]
    found = one_each(*runs)
    (dataset,) = found.datasets
    assert (dataset.problems, dataset.left_out) == (2, 2)
    assert "humaneval: 2 problems are not compared: not every run judged them" in found.warnings
    assert [each.value for each in dataset.standings["accepted_at_1"].values()] == [1.0, 0.5, 0.5]


def test_flips_tell_how_a_problem_ended_in_every_run() -> None:
    found = one_each(
        *(facts_of(samples_of(counts)) for counts in ([(4, 0), (4, 4)], [(4, 3), (4, 4)], [(4, 0), (4, 1)]))
    )
    (flip,) = found.datasets[0].flips
    assert {letter: outcome.text for letter, outcome in flip.outcomes.items()} == {
        "A": "0 of 4", "B": "3 of 4", "C": "0 of 4",
    }  # fmt: skip


def test_seeds_of_one_configuration_are_pooled() -> None:
    runs = [
        seeded(1, [True, False, False, False]), seeded(2, [True, True, True, False]),
        seeded(1, [True] * 4, model="better"), seeded(2, [True] * 4, model="better"),
    ]  # fmt: skip
    configurations = make_configurations(runs, pool_seeds=True)
    assert [[run.place for run in each.runs] for each in configurations] == [["m-1", "m-2"], ["better-1", "better-2"]]
    assert configurations[0].label == "m-1 · m · seeds 1, 2"
    (dataset,) = compare_several(configurations, all_pairs=False).datasets
    standing = dataset.standings["accepted_at_1"]["A"]
    assert standing.value == 0.5
    assert standing.spread == pytest.approx(np.std([0.25, 0.75], ddof=1))
    assert dataset.contrasts[0].differences["accepted_at_1"].difference == 0.5
    assert dataset.flips[0].outcomes["A"].text == "0 of 2"
    assert [len(each.runs) for each in make_configurations(runs, pool_seeds=False)] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "other",
    [
        seeded(1, [True]),  # the same seed: a repeat, not another draw
        seeded(2, [True], model="other"),
        seeded(2, [True], containment_levels=["seccomp"]),
        seeded(2, [True], responses=["answers.jsonl"]),
        seeded(2, [True], spec={"model": {"path": "m"}, "protocol": {"seed": 2, "temperature": "0.2"}}),
        seeded(2, [True], spec={}),
    ],
)
def test_runs_that_differ_by_more_than_the_seed_are_not_pooled(other: RunFacts) -> None:
    assert len(make_configurations([seeded(1, [True]), other], pool_seeds=True)) == 2


def test_conditions_that_runs_do_not_share_are_named_with_their_letters() -> None:
    found = one_each(
        seeded(1, [True]), seeded(1, [True], model="b"), seeded(1, [True], model="c", containment_levels=["none"])
    )
    assert found.warnings == ('A and C: containment: not said against ["none"]',)
