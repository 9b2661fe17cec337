import random
from collections.abc import Callable

import pytest

from evalrun_aggregator.ledger.item_states import ItemState, ItemStates
from evalrun_aggregator.ledger.items import DatasetItems, RunItems
from evalrun_aggregator.token_budget import TokenBudget, TokenBudgets
from evalrun_runtime.exits import BadInputError

Drawn = dict[int, tuple[int, int | None]]
"""Sample -> (its allowance, the tokens it used)."""


def one_by_one(budget: TokenBudget, tokens_of: Callable[[int, int], int | None]) -> Drawn:
    """Draw samples as the protocol says it: each after the one before."""
    drawn: Drawn = {}
    spent = 0
    while spent < budget.tokens:
        sample, allowance = len(drawn), min(budget.max_new_tokens, budget.tokens - spent)
        used = tokens_of(sample, allowance)
        drawn[sample] = (allowance, used)
        spent += budget.max_new_tokens if used is None else max(1, used)
    return drawn


def open_item_states(budget: TokenBudget, problems: int = 1) -> tuple[TokenBudgets, ItemStates]:
    items = RunItems([DatasetItems("d", [f"p{i}" for i in range(problems)])], budget.max_samples(problems))
    book, item_states = TokenBudgets(budget, items), ItemStates(items)
    book.restore(item_states, [])
    return book, item_states


def out(item_states: ItemStates) -> list[int]:
    return [i for i in range(item_states.items.count) if item_states.state(i) in (ItemState.PENDING, ItemState.LEASED)]


@pytest.mark.parametrize(
    ("tokens", "max_new", "spent", "waiting", "opens"),
    [
        (100, 10, 0, 0, True),
        (100, 10, 0, 9, True),
        (100, 10, 0, 10, False),
        (100, 10, 91, 0, True),
        (100, 10, 91, 1, False),
        (100, 10, 99, 0, True),
        (100, 10, 100, 0, False),
        (5, 10, 0, 0, True),
        (5, 10, 0, 1, False),
    ],
)
def test_may_open_is_true_only_if_the_next_allowance_is_known(
    tokens: int, max_new: int, spent: int, waiting: int, *, opens: bool
) -> None:
    assert TokenBudget(tokens, max_new).may_open(spent, waiting) is opens


@pytest.mark.parametrize("seed", range(40))
def test_parallel_samples_equal_those_of_the_sequential_order(seed: int) -> None:
    rng = random.Random(seed)
    budget = TokenBudget(rng.randint(1, 400), rng.randint(1, 60))
    wishes = [rng.choice([None, 0, rng.randint(0, 80)]) for _ in range(500)]

    def used(sample: int, allowance: int) -> int | None:
        wish = wishes[sample]
        return None if wish is None else min(wish, allowance)

    book, item_states = open_item_states(budget)
    drawn: Drawn = {}
    while waiting := out(item_states):
        sample = rng.choice(waiting)
        allowance = book.allowance(sample)
        drawn[sample] = (allowance, used(sample, allowance))
        item_states.move(sample, ItemState.GENERATED)
        book.settle(item_states, sample, drawn[sample][1])
        if rng.random() < 0.3:  # a restart in between: nothing but what is in the ledger is known
            book, item_states = TokenBudgets(budget, item_states.items), ItemStates(item_states.items)
            rows = [item_states.items.get_row(number) for number in sorted(drawn)]
            item_states.restore(rows, [], keep_not_judged=False)
            book.restore(
                item_states, [(item_states.items.get_row(n), tokens) for n, (_, tokens) in sorted(drawn.items())]
            )
    assert drawn == one_by_one(budget, used)


def test_token_budget_of_one_problem_is_not_spent_by_another() -> None:
    book, item_states = open_item_states(TokenBudget(10, 10), problems=2)
    assert out(item_states) == [0, 10]
    item_states.move(0, ItemState.GENERATED)
    book.settle(item_states, 0, 4)
    assert out(item_states) == [1, 10]
    assert (book.allowance(1), book.allowance(10)) == (6, 10)
    assert item_states.datasets[0].total == 3


def test_token_budget_with_too_many_samples_is_refused_with_the_largest_value() -> None:
    with pytest.raises(BadInputError, match=r"outputTokensPerProblem.*write at most 67108$"):
        TokenBudget(100_000, 10).max_samples(1000)
