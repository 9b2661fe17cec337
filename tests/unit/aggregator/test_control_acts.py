"""What an act of control does to a run, and by which words and messages it is asked for."""

import pytest

from evalrun_aggregator.control.acts import (
    Act,
    Effect,
    Pause,
    Refusal,
    RequeueNotJudged,
    Resume,
    SetConcurrency,
    Standing,
    Stop,
    decide,
)
from evalrun_aggregator.control.messages import REFUSALS, UnusableRequestError, make_request, read_act
from evalrun_aggregator.control.words import act_of_words, render_words
from evalrun_proto.ledger.v1 import ledger_pb2
from evalrun_runtime.exits import BadInputError

EVERY_ACT: list[Act] = [Pause(), Resume(), RequeueNotJudged(), SetConcurrency(8), SetConcurrency(None), Stop()]
GOES_ON = Standing()
CHANGES, NOTHING = Effect.CHANGES, Effect.NOTHING


@pytest.mark.parametrize(
    ("act", "standing", "effect"),
    [
        (Pause(), GOES_ON, CHANGES),
        (Pause(), Standing(paused=True), NOTHING),
        (Pause(), Standing(has_answers=False), CHANGES),
        (Resume(), Standing(paused=True), CHANGES),
        (Resume(), GOES_ON, NOTHING),
        (RequeueNotJudged(), Standing(not_judged=2), CHANGES),
        (RequeueNotJudged(), Standing(not_judged=2, paused=True), CHANGES),
        (RequeueNotJudged(), GOES_ON, NOTHING),
        (SetConcurrency(8), GOES_ON, CHANGES),
        (SetConcurrency(8), Standing(max_in_flight=8), NOTHING),
        (SetConcurrency(8), Standing(max_in_flight=8, paused=True), NOTHING),
        (SetConcurrency(None), Standing(max_in_flight=8), CHANGES),
        (SetConcurrency(None), GOES_ON, NOTHING),
        (Stop(), GOES_ON, CHANGES),
        (Stop(), Standing(paused=True), CHANGES),
        (Stop(), Standing(has_answers=False), Refusal.NO_ANSWER),
        (Stop(), Standing(ending=True), NOTHING),
        (Stop(), Standing(ended=True), NOTHING),
        (Stop(), Standing(ended=True, has_answers=False), NOTHING),
        (Resume(), Standing(failed=True, paused=True), Refusal.FAILED),
        (Stop(), Standing(failed=True), Refusal.FAILED),
    ],
)
def test_act_has_the_expected_effect_or_refusal(act: Act, standing: Standing, effect: Effect | Refusal) -> None:
    assert decide(act, standing) == effect


@pytest.mark.parametrize("act", [act for act in EVERY_ACT if not isinstance(act, Stop)], ids=str)
def test_a_run_that_ends_or_has_ended_takes_no_act(act: Act) -> None:
    assert decide(act, Standing(ending=True, paused=True, not_judged=1)) is Refusal.ENDING
    assert decide(act, Standing(ended=True, paused=True, not_judged=1)) is Refusal.ENDED


@pytest.mark.parametrize("act", EVERY_ACT, ids=str)
def test_every_act_survives_words_and_message(act: Act) -> None:
    assert act_of_words(render_words(act)) == act
    assert read_act(make_request(act)) == act


def test_every_refusal_has_a_distinct_number() -> None:
    assert set(REFUSALS) == set(Refusal)
    assert len(set(REFUSALS.values())) == len(Refusal)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no act: write pause, resume, requeue-not-judged, set concurrency=N or stop --keep"),
        (["suspend"], "suspend: write pause, resume"),
        (["pause", "now"], "now: pause takes nothing more: leave it away"),
        (["pause", "--keep"], "--keep: pause takes nothing more"),
        (["stop"], "write stop --keep"),
        (["stop", "now"], "write stop --keep"),
        (["set"], "set: write set concurrency=N"),
        (["set", "concurrency"], "set concurrency: write set concurrency=N"),
        (["set", "slots=3"], "set slots=3: write set concurrency=N"),
        (["set", "concurrency=1", "concurrency=2"], "set concurrency=1 concurrency=2: write set concurrency=N"),
        (["set", "concurrency=0"], "concurrency=0: write pause"),
        (["set", "concurrency="], "concurrency=: write a number from 1 to 65536"),
        (["set", "concurrency=-1"], "concurrency=-1: write a number from 1 to 65536"),
        (["set", "concurrency=many"], "concurrency=many: write a number from 1 to 65536"),
        (["set", "concurrency=1.5"], "concurrency=1.5: write a number from 1 to 65536"),
        (["set", "concurrency=٣"], "write a number from 1 to 65536"),
        (["set", "concurrency=65537"], "concurrency=65537: write a number from 1 to 65536"),
        (["set", "concurrency=" + "9" * 5000], "write a number from 1 to 65536"),
    ],
)
def test_unknown_words_of_an_act_are_refused_with_a_remedy(words: list[str], said: str) -> None:
    with pytest.raises(BadInputError) as refused:
        act_of_words(words)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "request_", [
        ledger_pb2.ControlRunRequest(),
        ledger_pb2.ControlRunRequest(set_concurrency=ledger_pb2.SetConcurrencyAct(max_in_flight=0)),
        ledger_pb2.ControlRunRequest(set_concurrency=ledger_pb2.SetConcurrencyAct(max_in_flight=65_537)),
    ],
)  # fmt: skip
def test_request_without_a_known_act_is_refused(request_: ledger_pb2.ControlRunRequest) -> None:
    with pytest.raises(UnusableRequestError):
        read_act(request_)
