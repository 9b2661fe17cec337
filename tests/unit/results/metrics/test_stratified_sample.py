import random
from collections import Counter
from functools import partial

import pytest

from evalrun_results.outputs.stratified_sample import (
    API_ERROR,
    OTHER_QUOTAS,
    QUOTAS,
    STRATA,
    Reservoir,
    StratifiedSampler,
    allot,
    find_quotas,
    largest_remainder,
)


def test_quotas_equal_the_documented_table() -> None:
    assert {name: tuple(places.values()) for name, places in QUOTAS.items()} == {
        "codecontests_valid": (10, 20, 10, 5, 5),
        "codecontests_test": (6, 12, 6, 3, 3),
        "humaneval": (4, 8, 4, 2, 2),
        "mbpp_reg": (4, 8, 4, 2, 2),
    }
    assert sum(sum(places.values()) for places in QUOTAS.values()) == 120
    assert find_quotas("demo") == find_quotas("humaneval")


@pytest.mark.parametrize(
    ("available", "expected"),
    [
        pytest.param((9, 9, 9, 9, 9), (4, 8, 4, 2, 2), id="enough of each"),
        # 8 places of wrong_answer to quotas 4:4:2:2 = 2.67, 2.67, 1.33, 1.33: the larger remainders get the last two.
        pytest.param((99, 0, 99, 99, 99), (7, 0, 7, 3, 3), id="one stratum empty"),
        pytest.param((99, 8, 99, 0, 2), None, id="equal remainders fall to the seed"),
        pytest.param((99, 99, 0, 0, 0), (7, 13, 0, 0, 0), id="two left: 8 places 4 to 8 = 2.67, 5.33"),
        pytest.param((5, 99, 0, 0, 0), (5, 15, 0, 0, 0), id="what one cannot take goes round again"),
        pytest.param((3, 3, 1, 0, 0), (3, 3, 1, 0, 0), id="fewer than the places"),
        pytest.param((0, 0, 0, 0, 0), (0, 0, 0, 0, 0), id="none"),
        pytest.param((0, 0, 0, 99, 0), (0, 0, 0, 20, 0), id="all in one"),
    ],
)
def test_places_of_a_short_stratum_are_given_to_the_others_in_proportion(
    available: tuple[int, ...], expected: tuple[int, ...] | None
) -> None:
    found = allot(OTHER_QUOTAS, dict(zip(STRATA, available, strict=True)), seed=1)
    if expected is None:
        assert sum(found.values()) == 20
        assert found["success"] + found["wrong_answer"] + found["syntax_error"] == 18
    else:
        assert tuple(found.values()) == expected


@pytest.mark.parametrize("seed", range(200))
def test_allotment_fills_every_place_that_can_be_filled(seed: int) -> None:
    chance = random.Random(seed)
    quotas = chance.choice(list(QUOTAS.values()))
    available = {stratum: chance.choice([0, 1, 3, 8, 500]) for stratum in STRATA}
    found = allot(quotas, available, seed)
    assert sum(found.values()) == min(sum(quotas.values()), sum(available.values()))
    for stratum in STRATA:
        assert min(quotas[stratum], available[stratum]) <= found[stratum] <= available[stratum]


def test_equal_remainders_are_resolved_randomly_by_seed() -> None:
    winners = Counter(
        next(name for name, places in largest_remainder(1, {"a": 3, "b": 3}, seed).items() if places)
        for seed in range(400)
    )
    assert winners["a"] == pytest.approx(200, abs=60)


def test_reservoir_is_uniform_and_builds_only_the_items_that_it_keeps() -> None:
    chance, kept, made = random.Random(0), Counter[int](), 0
    for _ in range(2000):
        reservoir = Reservoir[int](5)
        for item in range(50):
            before = made

            def make(item: int = item) -> int:
                nonlocal made
                made += 1
                return item

            reservoir.offer(chance.getrandbits(64), make)
            assert made - before <= 1
        kept.update(reservoir.take(3))
    assert made < 2000 * 25  # 5 x (1 + ln(50 / 5)) = 16.5 a stream are expected, of 50
    assert sum(kept.values()) == 6000
    assert min(kept[item] for item in range(50)) > 75
    assert max(kept[item] for item in range(50)) < 170


def sampled(order: list[int], seed: int = 3) -> dict[str, list[int]]:
    sampler = StratifiedSampler[int](seed)
    for item in order:
        status = ("success", "wrong_answer", "timeout", "runtime_error", "syntax_error", "empty_output")[item % 6]
        sampler.offer("humaneval", status, (f"P/{item}", 0), partial(int, item))
    return sampler.finish()["humaneval"].taken


def test_the_sample_does_not_depend_on_the_order_of_the_stream() -> None:
    order = list(range(600))
    first = sampled(order)
    random.Random(1).shuffle(order)
    assert sampled(order) == first
    assert sampled(order, seed=4) != first
    assert {stratum: len(items) for stratum, items in first.items()} == {**OTHER_QUOTAS, API_ERROR: 0}


def test_empty_output_counts_with_syntax_error() -> None:
    taken = sampled(list(range(600)))["syntax_error"]
    assert {item % 6 for item in taken} <= {4, 5}
    seen = {item % 6 for seed in range(10) for item in sampled(list(range(600)), seed)["syntax_error"]}
    assert seen == {4, 5}


def test_not_judged_answers_have_five_places_in_the_sample() -> None:
    sampler = StratifiedSampler[int](1)
    for item in range(40):
        sampler.offer("mbpp_reg", "api_error", (f"P/{item}", 0), partial(int, item))
    sample = sampler.finish()["mbpp_reg"]
    assert {stratum: len(items) for stratum, items in sample.taken.items()} == {
        **dict.fromkeys(STRATA, 0),
        API_ERROR: 5,
    }
