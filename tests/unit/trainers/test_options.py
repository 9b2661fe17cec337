"""What a trainer may say."""

import math

import pytest

from evalrun_trainers.options import Options, OptionsError, read_options


def test_arguments_win_over_the_environment_and_that_over_defaults() -> None:
    environment = {"EVALRUN_REWARD_URL": "http://a:1/, http://b:2", "EVALRUN_REWARD_MAX_BATCH": "7"}
    options = read_options({"max_batch": 9, "run": None, "timeout_seconds": "2.5"}, environment)
    assert options.urls == ("http://a:1", "http://b:2")
    assert (options.max_batch, options.run, options.timeout_seconds) == (9, "", 2.5)
    assert read_options({}, {}) == Options()


@pytest.mark.parametrize(("given", "meant"), [("raise", "raise"), ("RAISE", "raise"), ("-0.5", -0.5), (0, 0.0)])
def test_on_not_judged_accepts_raise_nan_or_a_number(given: object, meant: object) -> None:
    assert read_options({"on_not_judged": given}, {}).on_not_judged == meant
    nan = read_options({"on_not_judged": "nan"}, {}).on_not_judged
    assert isinstance(nan, float)
    assert math.isnan(nan)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "reward:8090"}, "write http://HOST:PORT"),
        ({"url": " "}, "url is empty"),
        ({"shape": "round"}, "dense, sparse"),
        ({"on_not_judged": "zero"}, "on_not_judged 'zero': write raise, nan, or a number"),
        ({"on_invalid": "zero"}, "on_invalid 'zero': write raise, nan, or a number"),
        ({"timeout_seconds": 0}, "above 0"),
        ({"linger_seconds": -1}, "0 or more"),
        ({"max_batch": "many"}, "max_batch 'many': write a int"),
        ({"adress": "x"}, "unknown option 'adress'"),
    ],
)
def test_unusable_option_is_refused_by_name(given: dict[str, object], message: str) -> None:
    with pytest.raises(OptionsError, match=message):
        read_options(given, {})
