import pytest

from evalrun_generator.rollout.replica_api import parse_generated_tokens
from evalrun_generator.rollout.vital_signs import ProbeLimits, VitalSigns, should_ask, trouble

PATIENCE = ProbeLimits(quiet_seconds=5, hang_seconds=60, failures=2)
FRESH = VitalSigns(progress_at=0.0)


def test_a_replica_that_makes_progress_is_never_asked() -> None:
    signs = FRESH.apply_count(0, 10.0, now=1.0)
    assert not should_ask(signs, PATIENCE, 5.9)
    assert not should_ask(signs.apply_count(0, 11.0, now=5.0), PATIENCE, 9.0)
    assert not should_ask(signs.apply_count(1, 10.0, now=5.0), PATIENCE, 9.0)


def test_replica_without_progress_is_asked_once() -> None:
    signs = FRESH.apply_count(0, 0.0, now=0.0).apply_count(0, 0.0, now=5.0)
    assert should_ask(signs, PATIENCE, 5.0)
    asked = signs.apply_asking(5.0)
    assert not should_ask(asked, PATIENCE, 30.0)
    assert not should_ask(asked.apply_reply(None, now=6.0), PATIENCE, 10.0)


def test_replica_is_hung_without_an_answer_and_without_a_token() -> None:
    asked = FRESH.apply_asking(5.0)
    assert trouble(asked, PATIENCE, 64.9) == ""
    assert trouble(asked, PATIENCE, 65.0) == "hung: no token and no answer to a tiny completion within 60 s"
    # The question waits behind work that goes on.
    assert trouble(asked.apply_count(0, 7.0, now=60.0), PATIENCE, 100.0) == ""


def test_a_server_without_a_counter_is_judged_by_its_answers() -> None:
    signs = FRESH.apply_count(3, None, now=4.0)
    assert signs.progress_at == 4.0
    assert signs.apply_count(3, None, now=9.0).progress_at == 4.0


def test_replica_is_dead_after_failed_checks_in_a_row() -> None:
    once = FRESH.apply_health("/health: 503")
    assert trouble(once, PATIENCE, 1.0) == ""
    assert trouble(once.apply_health(None).apply_health("/health: 503"), PATIENCE, 1.0) == ""
    assert trouble(once.apply_health("/health: 503"), PATIENCE, 1.0) == "dead: /health: 503"
    assert trouble(once.apply_reply("HTTP 500", now=1.0), PATIENCE, 1.0) == "dead: HTTP 500"


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", None),
        ("vllm:prompt_tokens_total 7.0\n", None),
        ('# HELP x\nvllm:generation_tokens_total{engine="0",model_name="m"} 1.5e+02\n', 150.0),
        ('vllm:generation_tokens_total{engine="0"} 2.0\nvllm:generation_tokens_total{engine="1"} 3.0\n', 5.0),
        ("sglang:generation_tokens_total 4\n", 4.0),
        ("vllm:generation_tokens_total_of_something 9\n", None),
    ],
)
def test_the_counter_is_read_from_prometheus_text(text: str, tokens: float | None) -> None:
    assert parse_generated_tokens(text) == tokens
