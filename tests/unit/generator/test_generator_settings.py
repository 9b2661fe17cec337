import pytest

from evalrun_generator.endpoints.base_url import base_url
from evalrun_generator.settings import GeneratorSettings
from evalrun_runtime.exits import BadInputError
from evalrun_runtime.settings import load_settings

NEEDED = ["--ledger", "grpc://127.0.0.1:1", "--model", "m"]


def load(*arguments: str) -> GeneratorSettings:
    return load_settings(GeneratorSettings, [*NEEDED, *arguments], program="evalrun-generator")


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://h:1", "http://h:1"),
        ("http://h:1/", "http://h:1"),
        ("http://h:1/v1", "http://h:1"),
        (" https://h/some/path/v1/ ", "https://h/some/path"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
    ],
)
def test_base_url_drops_the_v1_suffix_and_slashes(given: str, url: str) -> None:
    assert base_url(given) == url


@pytest.mark.parametrize(
    "given",
    ["h:1", "ftp://h", "http://", "http:///v1", "http://h?key=1", "", "http://h:", "http://h:x/v1", "http://h:99999"],
)
def test_base_url_of_other_text_is_refused_with_the_form(given: str) -> None:
    with pytest.raises(BadInputError, match="write http://HOST:PORT"):
        base_url(given)


def test_passwords_in_urls_are_refused_and_not_repeated() -> None:
    with pytest.raises(BadInputError) as raised:
        base_url("http://user:secret@h:1")
    assert "secret" not in str(raised.value)


def test_endpoints_are_read_from_repeated_flags_and_from_a_list() -> None:
    assert load("--endpoint", "http://a/v1", "--endpoint", "http://b").endpoint == ["http://a", "http://b"]
    assert load("--endpoint", "http://a,http://b").endpoint == ["http://a", "http://b"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--endpoint: Field required"),
        (["--endpoint", "a:1"], "--endpoint: .*write http://HOST:PORT"),
        (["--endpoint", "http://a", "--endpoint", "http://a/v1"], "given twice"),
        (["--endpoint", "http://a", "--concurrency", "0"], "--concurrency"),
        (["--endpoint", "http://a,http://b,http://c", "--concurrency", "2,3"], "2 numbers for 3 endpoints"),
        (["--endpoint", "http://a", "--backoff-seconds", "11"], "max_backoff_seconds"),
    ],
)
def test_unusable_settings_are_refused_by_name(arguments: list[str], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        load(*arguments)


def test_deadlines_follow_max_tokens_above_a_floor() -> None:
    settings = load("--endpoint", "http://a", "--request-seconds", "100", "--request-seconds-per-token", "0.1")
    assert settings.deadline_for(64) == 100.0
    assert settings.deadline_for(2048) == pytest.approx(204.8)


@pytest.mark.parametrize(
    ("given", "slots"), [([], [256, 256]), (["7"], [7, 7]), (["7,9"], [7, 9]), (["7", "9"], [7, 9])]
)
def test_concurrency_is_given_for_all_endpoints_or_for_each(given: list[str], slots: list[int]) -> None:
    flags = [part for number in given for part in ("--concurrency", number)]
    assert load("--endpoint", "http://a,http://b", *flags).slots == slots
