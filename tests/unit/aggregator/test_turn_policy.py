"""When a sample's next turn opens, and the chat of that turn."""

import pytest

from evalrun_aggregator.ledger.entries import Exchange, StoredCompletion
from evalrun_aggregator.ledger.item_states import ItemState, ItemStates
from evalrun_aggregator.ledger.items import DatasetItems, ItemKey, RunItems
from evalrun_aggregator.turns.feedback import WRONG, FeedbackOptions
from evalrun_aggregator.turns.policy import FRAME_TOKENS, TurnPolicy, conversation, make_turn_policy
from evalrun_api.run_config import EvalRunSpec
from evalrun_data.records import Message, Problem, StdioTests
from evalrun_proto.judge.v1 import judge_pb2 as pb

PROBLEM = Problem("d", "p", "Add.", StdioTests(("1\n",), ("1\n",), ("public",)))
CONTROL = FeedbackOptions(only_wrong=True)
FITS = 4096


def verdict(*, judged: bool = True, accepted: bool = False) -> pb.Verdict:
    return pb.Verdict(final_status=pb.FINAL_STATUS_WRONG_ANSWER, judged=judged, accepted=accepted)


@pytest.mark.parametrize(
    ("limit", "turn", "judged", "accepted", "opens"),
    [
        (2, 0, True, False, True),
        (2, 1, True, False, False),  # the last turn
        (4, 2, True, False, True),
        (4, 3, True, False, False),
        (4, 0, True, True, False),  # accepted
        (4, 0, False, False, False),  # not judged: nobody knows whether it failed
        (4, 0, False, True, False),
    ],
)
def test_a_turn_opens_after_a_failure_up_to_the_limit(
    limit: int, turn: int, *, judged: bool, accepted: bool, opens: bool
) -> None:
    policy = TurnPolicy(limit, FITS, CONTROL)
    said = policy.next_feedback(turn, PROBLEM, StoredCompletion(0, "x"), verdict(judged=judged, accepted=accepted))
    assert said == (WRONG if opens else "")


@pytest.mark.parametrize(
    ("prompt", "output", "spare", "opens"),
    [(100, 200, 0, True), (100, 200, -1, False), (None, 200, -1, True), (100, None, -1, True)],
)
def test_a_turn_opens_only_where_the_conversation_fits(
    prompt: int | None, output: int | None, spare: int, *, opens: bool
) -> None:
    room = 100 + 200 + len(WRONG) + FRAME_TOKENS + spare
    completion = StoredCompletion(0, "x", prompt_tokens=prompt, output_tokens=output)
    assert bool(TurnPolicy(4, room, CONTROL).next_feedback(0, PROBLEM, completion, verdict())) is opens


def test_feedback_counts_by_its_bytes() -> None:
    completion = StoredCompletion(0, "x", prompt_tokens=1, output_tokens=1)
    policy = TurnPolicy(4, 2 + FRAME_TOKENS + 2)
    assert (policy.has_room(completion, "é"), policy.has_room(completion, "éa")) == (True, False)


def test_chat_of_a_later_turn_holds_the_prompt_and_each_answer_with_its_feedback() -> None:
    prompt = [Message("system", "s"), Message("user", "Add.")]
    chat = conversation(prompt, [Exchange("first", "wrong"), Exchange("second", "wrong again")])
    assert [(each.role, each.content) for each in chat] == [
        ("system", "s"), ("user", "Add."), ("assistant", "first"), ("user", "wrong"), ("assistant", "second"),
        ("user", "wrong again"),
    ]  # fmt: skip
    assert conversation(prompt, []) == prompt


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        ("<think>a ``` b</think>\n\nanswer", "answer"),
        ("thought</think>answer", "answer"),  # the prompt held <think>
        ('```python\nprint("</think>")\n```', '```python\nprint("</think>")\n```'),
        ("plain", "plain"),
    ],
)
def test_thoughts_are_not_sent_again(answer: str, sent: str) -> None:
    assert conversation([], [Exchange(answer, "wrong")])[0].content == sent


def spec(**changes: object) -> EvalRunSpec:
    return EvalRunSpec.model_validate(
        {
            "model": {"path": "m/m"},
            "datasets": [{"name": "d", "source": "d.jsonl"}, {"name": "e", "source": "e.jsonl", "feedback": "Wrong"}],
            "protocol": {"name": "EVAL@turns", "turns": {"limit": 3, **changes}},
            "endpoints": [{"url": "http://127.0.0.1:1/v1"}],
        }
    )


def test_turn_policy_has_the_settings_of_the_spec() -> None:
    run = spec(shownTests=2, shownCharacters=64, template="{status}")
    policies = [make_turn_policy(run, dataset) for dataset in run.datasets]
    assert policies[0] == TurnPolicy(3, 4096, FeedbackOptions("{status}", 2, 64))
    assert policies[1] == TurnPolicy(3, 4096, FeedbackOptions("{status}", 2, 64, only_wrong=True))
    shorter = spec(maxPromptTokens=100)
    policy = make_turn_policy(shorter, shorter.datasets[0])
    assert policy is not None
    assert policy.max_prompt_tokens == 100


ITEMS = RunItems([DatasetItems("d", ["p", "q"])], samples=2, turns=3)


def opened(rows: list[int] | None = None) -> ItemStates:
    item_states = ItemStates(ITEMS)
    item_states.leave_out_later_turns(rows or [])
    return item_states


def states(item_states: ItemStates) -> list[str]:
    """Return the states of each sample's turns, a letter a turn."""
    letters = "".join(item_states.state(index).name[0] for index in range(ITEMS.count))
    return [letters[start : start + 3] for start in range(0, ITEMS.count, 3)]


def test_keys_rows_and_indices_of_turns_map_to_each_other() -> None:
    keys = [ITEMS.get_key(index) for index in range(ITEMS.count)]
    assert keys[:4] == [ItemKey("d", "p", 0, 0), ItemKey("d", "p", 0, 1), ItemKey("d", "p", 0, 2), ItemKey("d", "p", 1)]
    assert [ITEMS.find_index(key) for key in keys] == list(range(12))
    assert [ITEMS.index_of_row(ITEMS.get_row(index)) for index in range(12)] == list(range(12))
    assert (ITEMS.find_index(ItemKey("d", "p", 0, 3)), ITEMS.get_position(6)) == (None, 1)


def test_later_turn_opens_after_a_verdict_and_is_counted_as_possible_before() -> None:
    item_states = opened()
    (counts,) = item_states.datasets
    assert states(item_states) == ["PAA"] * 4
    assert (counts.total, counts.generated, item_states.may_follow) == (4, 0, 0)
    item_states.move(0, ItemState.GENERATED)
    assert (counts.total, counts.generated, item_states.may_follow) == (5, 1, 1)
    item_states.move(0, ItemState.JUDGING)
    item_states.judge(0, judged=True, accepted=False, final_status=6)
    item_states.open_next_turn(0)
    assert states(item_states) == ["RPA", "PAA", "PAA", "PAA"]
    assert (counts.total, counts.generated, item_states.may_follow, item_states.remaining) == (5, 1, 0, 4)
    for index in (1, 2):
        item_states.move(index, ItemState.GENERATED)
        item_states.judge(index, judged=True, accepted=index == 2, final_status=6)
        if index == 1:
            item_states.open_next_turn(index)
    assert states(item_states)[0] == "RRA"
    assert (item_states.may_follow, counts.accepted_at_1) == (0, 0.0)  # of first answers


def test_no_turn_may_follow_the_last_turn() -> None:
    item_states = opened([ITEMS.get_row(0), ITEMS.get_row(1)])
    assert states(item_states) == ["PPP", "PAA", "PAA", "PAA"]
    item_states.move(2, ItemState.GENERATED)
    assert item_states.may_follow == 0


def test_restart_opens_the_turns_that_have_feedback_in_the_ledger() -> None:
    """p's sample 0 has failed twice, sample 1 was accepted, q's sample 0 waits for its verdict, 1 had no room."""
    item_states = ItemStates(ITEMS)
    rows = [ITEMS.get_row(index) for index in range(ITEMS.count)]
    verdicts = [
        (rows[0], 6, True, False),
        (rows[1], 6, True, False),
        (rows[3], 1, True, True),
        (rows[9], 6, True, False),
    ]
    item_states.restore([rows[0], rows[1], rows[3], rows[6], rows[9]], verdicts, keep_not_judged=False)
    item_states.leave_out_later_turns([rows[0], rows[1]])
    assert states(item_states) == ["RRP", "AAA", "GAA", "RAA"]
    assert (item_states.remaining, item_states.unjudged, item_states.may_follow) == (1, 1, 1)
    assert item_states.datasets[0].accepted_at_1 == (1 / 2 + 0) / 2


def test_a_problem_is_settled_once_no_turn_can_open() -> None:
    item_states = opened()
    for index in (0, 3):
        item_states.move(index, ItemState.GENERATED)
    assert not item_states.is_settled(0)
    for index in (0, 3):
        item_states.judge(index, judged=True, accepted=True, final_status=1)
    assert item_states.is_settled(0)


def test_a_sample_that_was_cancelled_gets_no_turn() -> None:
    item_states = opened()
    item_states.move(6, ItemState.JUDGING)
    item_states.cancel({0: 1})
    item_states.open_next_turn(6)
    assert states(item_states)[2] == "CAA"
