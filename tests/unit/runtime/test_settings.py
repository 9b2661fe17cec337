"""Where a service's settings come from, and what a wrong one says."""

import re
from pathlib import Path

import pytest
from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from evalrun_runtime.exits import BadInputError
from evalrun_runtime.settings import ServiceSettings, load_settings


class ExampleSettings(ServiceSettings):
    """Run the example."""

    model_config = SettingsConfigDict(env_prefix="EVALRUN_EXAMPLE_")

    slots: int = Field(2, ge=1, description="Slots.")
    endpoint: list[str] = Field(default_factory=list, description="Endpoints.")


def load(*arguments: str) -> ExampleSettings:
    return load_settings(ExampleSettings, arguments, program="evalrun serve example")


def test_flag_wins_over_environment_which_wins_over_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("slots: 3\nport: 3\nmetrics_port: 3\n")
    monkeypatch.setenv("EVALRUN_EXAMPLE_SLOTS", "4")
    monkeypatch.setenv("EVALRUN_EXAMPLE_PORT", "4")
    settings = load("--config", str(file), "--slots", "5")
    assert (settings.slots, settings.port, settings.metrics_port) == (5, 4, 3)


def test_a_list_is_given_by_repeating_the_flag() -> None:
    assert load("--endpoint", "http://a", "--endpoint", "http://b").endpoint == ["http://a", "http://b"]


def test_settings_are_frozen() -> None:
    settings = load()
    with pytest.raises(ValueError, match="frozen"):
        settings.slots = 7  # type: ignore[misc]  # the very mistake under test


def test_another_address_than_loopback_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInputError, match="not loopback: set a token"):
        load("--host", "0.0.0.0")
    monkeypatch.setenv("EVALRUN_EXAMPLE_TOKEN", "s3cret")
    settings = load("--host", "0.0.0.0")
    assert settings.token is not None
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--slots", "0"), r"evalrun serve example: --slots: .*greater than or equal to 1"),
        (("--port", "x"), r"evalrun serve example: --port: .*integer"),
        (("--config", "/nowhere/x.yaml"), r"--config /nowhere/x.yaml: No such file"),
    ],
)
def test_a_wrong_value_is_named(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        load(*arguments)


def test_help_names_every_setting_its_file_and_its_variables(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        load("--help")
    assert ended.value.code == 0
    printed = " ".join(capsys.readouterr().out.split())
    for part in (
        "Run the example.",
        "--slots INTEGER",
        "--endpoint TEXT",
        "--config FILE",
        "EVALRUN_EXAMPLE_LOG_LEVEL",
    ):
        assert part in printed


def test_a_file_that_is_no_yaml_is_named(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_bytes(b"slots: [\xff")
    with pytest.raises(BadInputError, match=r"--config .*settings\.yaml: not readable as YAML"):
        load("--config", str(file))


def test_an_unknown_name_in_the_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("slot: 3\n")
    with pytest.raises(BadInputError, match="--slot: Extra inputs"):
        load("--config", str(file))


class TwoTokens(ServiceSettings):
    """Run the example with a token of somebody else's."""

    model_config = SettingsConfigDict(env_prefix="EVALRUN_EXAMPLE_")

    judge_token: SecretStr | None = Field(None, description="Another service's.")


@pytest.mark.parametrize("name", ["token", "judge_token"])
@pytest.mark.parametrize("value", ["", " ", "\n"])
def test_empty_token_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """It counted as one: the port opened to everybody, and `Bearer ` was let in."""
    monkeypatch.setenv(f"EVALRUN_EXAMPLE_{name.upper()}", value)
    with pytest.raises(BadInputError, match=f"{name}: it is set and empty"):
        load_settings(TwoTokens, ["--host", "0.0.0.0"], program="evalrun serve example")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prot", "1"], "no such option: --prot: did you mean --port?"),
        (["--zzzzzzzz=1"], "no such option: --zzzzzzzz: --help lists all"),
        (["--port"], "argument --port: expected one argument"),
    ],
)
def test_load_settings_with_a_wrong_flag_says_what_to_write(arguments: list[str], message: str) -> None:
    with pytest.raises(BadInputError, match=re.escape(message)):
        load(*arguments)


def test_help_of_a_service_names_kinds_of_values_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load("-h")
    said = capsys.readouterr().out
    assert said.startswith("Usage: evalrun serve example [OPTIONS]\n\nRun the example.")
    assert "\nOptions:\n" in said
    assert "--port INTEGER" in said
    assert "SecretStr" not in said
    assert "factory" not in said
    assert "None)" not in said
    assert "Slots. (default: 2)" in said
    assert "Exit codes: 0 ended as told" in said
