"""What a call may do with a session, and what its actions are shown: pure."""

import msgspec
import pytest

from evalrun_proto.judge.v1 import judge_pb2
from evalrun_reward.sessions.messages import render_id
from evalrun_reward.sessions.observation import NO_PROGRAM, append_submission, cut, render_observation
from evalrun_reward.sessions.session import (
    Session,
    SessionClosedError,
    SessionError,
    SessionLimitError,
    SessionLimits,
    Turn,
    TurnConflictError,
    find_replay,
    is_sid,
    make_sid,
)

LIMITS = SessionLimits(max_turns=3, max_characters=1000, max_observation=100)


def session(*contents: str, closed: bool = False) -> Session:
    turns = tuple(Turn(content, f"saw {content}", has_program="p" in content) for content in contents)
    return Session("1", "i", b"d", turns=turns, closed=closed)


@pytest.mark.parametrize(
    ("held", "content", "turn", "wanted"),
    [
        (session(), "a", None, None),
        (session(), "a", 0, None),
        (session("a"), "a", None, "saw a"),
        (session("a"), "a", 0, "saw a"),
        (session("a"), "a", 1, None),  # the same program again, and the caller says that it is another turn
        (session("a", "b"), "a", None, None),
        (session("a", "b"), "a", 0, "saw a"),
        (session("a", closed=True), "a", None, "saw a"),
        (session("a", "b", "c"), "c", None, "saw c"),
        (session("a"), "b", 0, TurnConflictError),
        (session("a"), "b", 2, TurnConflictError),
        (session("a"), "b", -1, TurnConflictError),
        (session("a", closed=True), "b", None, SessionClosedError),
        (session("a", "b", "c"), "d", None, SessionLimitError),
        (session("a" * 700), "b" * 250, None, SessionLimitError),
    ],
)
def test_an_action_is_new_or_a_retry_or_refused(
    held: Session, content: str, turn: int | None, wanted: str | type[SessionError] | None
) -> None:
    if isinstance(wanted, type):
        with pytest.raises(wanted):
            find_replay(held, content, turn, LIMITS)
    else:
        assert find_replay(held, content, turn, LIMITS) == wanted


@pytest.mark.parametrize(
    ("contents", "answer"),
    [((), ""), (("p1", "p2"), "p2"), (("p1", "thanks"), "p1"), (("a", "b"), "b")],
)
def test_the_last_program_is_judged(contents: tuple[str, ...], answer: str) -> None:
    assert session(*contents).answer == answer


def test_each_change_is_another_version() -> None:
    one = session()
    two = one.with_turn(Turn("a", "b", has_program=True))
    three = two.as_closed()
    assert (one.version, two.version, three.version) == (1, 2, 3)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(three), type=Session) == three


def test_ids_fit_a_signed_64_bit_integer_and_a_request_id_names_one_session() -> None:
    ids = {make_sid("r", "") for _ in range(100)}
    assert len(ids) == 100
    assert make_sid("r", "x") == make_sid("r", "x")
    assert len({make_sid("r", "x"), make_sid("q", "x"), make_sid("r", "y"), make_sid("rx", "")}) == 4
    assert all(is_sid(one) and int(one) < 1 << 53 for one in {*ids, make_sid("r", "x")})


@pytest.mark.parametrize("text", ["", "-1", "x", "1.0", " 1", "9223372036854775808", "1" * 30, "\u0661"])
def test_is_sid_rejects_other_texts(text: str) -> None:
    assert not is_sid(text)


def result(status: judge_pb2.TestStatus.ValueType, **more: object) -> judge_pb2.TestResult:
    texts = {name: judge_pb2.CutText(text=str(text), full_length=len(str(text))) for name, text in more.items()}
    return judge_pb2.TestResult(status=status, ran=status != judge_pb2.TEST_STATUS_COMPILE_ERROR, **texts)  # type: ignore[arg-type]


def verdict(*tests: judge_pb2.TestResult) -> judge_pb2.Verdict:
    return judge_pb2.Verdict(judged=True, tests=tests)


def test_an_observation_says_how_a_program_ended() -> None:
    ok, bad = judge_pb2.TEST_STATUS_WRONG_ANSWER, judge_pb2.TEST_STATUS_RUNTIME_ERROR
    failed = result(bad, stderr="ValueError: x\n")
    failed.exit_code = 1
    assert render_observation(verdict(result(ok, stdout="3\n")), (), 100) == "stdout:\n3"
    assert render_observation(verdict(result(ok)), (), 100) == "[it printed nothing]"
    assert render_observation(verdict(failed), (), 100) == "stderr:\nValueError: x\n[exit code 1]"
    slow = verdict(result(judge_pb2.TEST_STATUS_TIMEOUT))
    assert render_observation(slow, (), 100) == "[stopped: time limit exceeded]"
    empty = judge_pb2.Verdict(judged=True, final_status=judge_pb2.FINAL_STATUS_EMPTY_OUTPUT)
    assert render_observation(empty, (), 200) == NO_PROGRAM


def test_an_observation_on_public_tests_shows_each() -> None:
    right, wrong = result(judge_pb2.TEST_STATUS_SUCCESS, stdout="1"), result(judge_pb2.TEST_STATUS_WRONG_ANSWER)
    wrong.case_index = 1
    text = render_observation(verdict(right, wrong), (("1\n", "1\n"), ("2\n", "2\n")), 1000)
    first, second = text.split("\n\n")
    assert first == "Test 1: passed\ninput:\n1\nexpected:\n1\nprinted:\n1"
    assert second == "Test 2: failed\ninput:\n2\nexpected:\n2\n[it printed nothing]"
    broken = result(judge_pb2.TEST_STATUS_COMPILE_ERROR, compile_stderr="SyntaxError")
    shown = (("1", "1"), ("2", "2"))
    assert render_observation(verdict(broken, broken), shown, 100) == "compiler:\nSyntaxError\n[it does not compile]"


@pytest.mark.parametrize("limit", [1, 40, 100, 256, 5000])
def test_a_long_observation_loses_its_middle(limit: int) -> None:
    long = "".join(map(str, range(3000)))
    short = cut(long, limit)
    assert len(short) == limit
    if limit >= 100:
        assert (short[:3], short[-3:]) == (long[:3], long[-3:])
    assert cut("x" * limit, limit) == "x" * limit


def test_observation_counts_the_bytes_that_the_judge_cut() -> None:
    test = result(judge_pb2.TEST_STATUS_WRONG_ANSWER)
    test.stdout.text, test.stdout.full_length = "xx", 5000
    assert render_observation(verdict(test), (), 100) == "stdout:\nxx\n[4998 bytes more]"


@pytest.mark.parametrize(
    ("given", "text"), [(17, "17"), ("p17", "p17"), (17.0, "17"), (2.0**53 - 1, "9007199254740991"), (0.5, "0.5")]
)
def test_text_of_a_number_is_its_decimal_digits(given: str | float, text: str) -> None:
    assert render_id(given) == text


@pytest.mark.parametrize("limit", [60, 256])
def test_append_submission_keeps_the_line_within_the_limit(limit: int) -> None:
    right, wrong = result(judge_pb2.TEST_STATUS_SUCCESS), result(judge_pb2.TEST_STATUS_WRONG_ANSWER)
    text = append_submission("x" * 300, verdict(right, wrong, wrong), limit)
    assert len(text) == limit
    assert text.endswith("\n[submitted: 1 of 3 tests passed]")
