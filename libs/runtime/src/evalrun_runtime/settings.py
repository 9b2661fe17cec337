"""Settings of a service: one frozen object, read once at start.

A flag wins over the environment (`EVALRUN_<SERVICE>_<FIELD>`), which wins over the file given by `--config`
(YAML or JSON), which wins over the default.
"""

import argparse
import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NoReturn, Self, TypeVar, cast

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from evalrun_runtime.exits import BadInputError


def split_commas(value: object) -> object:
    """Split `a,b`, or a list of such texts, into one list of texts; return other values unchanged."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        return value
    return [part.strip() for entry in value for part in str(entry).split(",") if part.strip()]


ItemT = TypeVar("ItemT")

CommaSeparated = Annotated[list[ItemT], NoDecode, BeforeValidator(split_commas)]
"""A list that a flag takes several times, or once with commas, and a variable with commas."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ServiceSettings(BaseSettings):
    """Settings of every service. Subclasses set `env_prefix` and add their own fields."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix="EVALRUN_", cli_kebab_case=True, cli_hide_none_type=True,
        cli_avoid_json=True, cli_implicit_flags=True,
        # `load_settings` uses only a subclass.
        defer_build=True,
    )  # fmt: skip

    host: str = Field("127.0.0.1", description="Address to listen on. Any address except loopback requires a token.")
    port: int = Field(0, ge=0, le=65535, description="Port to listen on; 0 picks a free port and prints it when ready.")
    metrics_port: int | None = Field(None, ge=0, le=65535, description="Port for Prometheus metrics; none by default.")
    metrics_token_sha256: CommaSeparated[Sha256] = Field(
        default_factory=list,
        max_length=8,
        description="SHA-256, in hex, of a bearer token that scrapers may send. Repeatable. None: no token is needed.",
    )
    token: SecretStr | None = Field(
        None, description="Bearer token that callers must send. Set it in the environment: flags are visible in ps."
    )
    token_file: Path | None = Field(
        None,
        description="File with the tokens that callers may send, one a line; read again when it changes. Instead of "
        "the token.",
    )
    tls_folder: Path | None = Field(
        None,
        description="Directory with tls.crt, tls.key and ca.crt, read again when they change: the port takes TLS "
        "alone, "
        "from callers with a certificate of ca.crt's. Default: plain text.",
    )
    health_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port that answers health checks and nothing else, in plain text: a kubelet's probes have no "
        "certificate. None by default.",
    )
    drain_seconds: float = Field(
        60.0, ge=0, description="Seconds that requests in flight may take after SIGTERM before they are cut off."
    )
    exit_with_parent: bool = Field(default=False, description="Exit when the process that started this one exits.")
    log_format: Literal["text", "json"] = Field("text", description="Format of log lines on stderr.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Minimum log level.")

    @model_validator(mode="after")
    def _no_empty_token(self) -> Self:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, SecretStr) and not value.get_secret_value().strip():
                raise ValueError(f"{name}: it is set and empty, which would let anyone in: set a token, or unset it")
        return self

    @model_validator(mode="after")
    def _token_beyond_loopback(self) -> Self:
        if self.token is None and self.token_file is None and not is_loopback(self.host):
            raise ValueError(
                f"host {self.host} is not loopback: set a token (environment variable ..._TOKEN) or a token_file"
            )
        return self

    @model_validator(mode="after")
    def _one_source_of_tokens(self) -> Self:
        for name in type(self).model_fields:
            if name.endswith("token_file") and getattr(self, name) is not None:
                token = name.removesuffix("_file")
                if getattr(self, token) is not None:
                    raise ValueError(f"{token} and {name} are both set: unset one of them")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Leave only code and the environment; `load_settings` adds the flags above and the file below them."""
        del settings_cls, dotenv_settings, file_secret_settings
        return init_settings, env_settings


KINDS: Final = {
    "str": "TEXT", "SecretStr": "TEXT", "Path": "PATH", "FilePath": "PATH", "int": "INTEGER", "float": "NUMBER",
    "bool": "BOOLEAN",
}  # fmt: skip
EXIT_CODES: Final = "Exit codes: 0 ended as told, 1 failed, 2 bad input."


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class SettingsParser(argparse.ArgumentParser):
    """Reads flags, and writes help and errors as the other commands do."""

    def format_help(self) -> str:
        """Return the help, in which a value is called by its kind, and a default is no word of Python."""
        self.usage, self._optionals.title = "%(prog)s [OPTIONS]", "Options"
        for action in self._actions:
            action.help = "Show this message and exit." if action.dest == "help" else help_without_python(action.help)
            if action.nargs != 0 and isinstance(action.metavar, str):
                action.metavar = kind_of_value(action.metavar)
        return f"Usage: {super().format_help().removeprefix('usage: ')}"

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - as overloaded above
        """Parse the arguments. Raises BadInputError for unknown arguments."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            # Only a wrong flag needs the module.
            import difflib

            flag = unknown[0].partition("=")[0]
            known = [name for action in self._actions for name in action.option_strings]
            similar = difflib.get_close_matches(flag, known, 1)
            hint = f"did you mean {similar[0]}?" if similar else "--help lists all"
            raise BadInputError(f"{self.prog}: no such option: {flag}: {hint}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Raise BadInputError."""
        raise BadInputError(f"{self.prog}: {message}")


def help_without_python(text: str | None) -> str | None:
    """Return a help text without a default that only Python's readers know: None, or the name of a function."""
    return None if text is None else re.sub(r"\s*\(default(?: factory: \w+|: None)\)", "", text)


def kind_of_value(metavar: str) -> str:
    """Return the word that help uses for a value, from the name of its type, e.g. `{SecretStr,null}`."""
    names = {name.strip() for name in re.split(r"[{},|\[\]]", metavar)} - {"", "null", "None", "list"}
    kinds = {KINDS.get(name) for name in names}
    kind = kinds.pop() if len(kinds) == 1 else None
    return metavar if kind is None else kind


SettingsT = TypeVar("SettingsT", bound=ServiceSettings)


def load_settings(settings_type: type[SettingsT], arguments: Sequence[str], *, program: str) -> SettingsT:
    """Read the settings from flags, environment and file.

    Raises:
        BadInputError: a flag, variable or file that cannot be used; the message names it.
        SystemExit: `--help`.
    """
    remaining, file_values = _split_config(list(arguments))
    parser = SettingsParser(program, description=settings_type.__doc__, epilog=EXIT_CODES, allow_abbrev=False)
    prefix = settings_type.model_config["env_prefix"]
    parser.add_argument(
        "--config",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help=f"YAML or JSON file of settings by name. Flags override the environment ({prefix}LOG_LEVEL for "
        "--log-level), which overrides this file.",
    )

    class Configured(settings_type):  # type: ignore[valid-type,misc]
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            del init_settings, dotenv_settings, file_secret_settings
            flags = CliSettingsSource[Any](settings_cls, root_parser=parser, cli_parse_args=remaining)
            return flags, env_settings, InitSettingsSource(settings_cls, init_kwargs=file_values)

    Configured.__doc__ = settings_type.__doc__
    try:
        configured = Configured()
    except ValidationError as error:
        first = error.errors()[0]
        where = "--" + "-".join(str(part) for part in first["loc"]).replace("_", "-") + ": " if first["loc"] else ""
        raise BadInputError(f"{program}: {where}{first['msg'].removeprefix('Value error, ')}") from error
    except SettingsError as error:
        raise BadInputError(f'{program}: {error}: a list in a variable is JSON, e.g. \'["one", "two"]\'') from error
    return cast(SettingsT, configured)


def _split_config(arguments: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Take `--config FILE` out of the arguments and read it."""
    for index, argument in enumerate(arguments):
        if argument != "--config" and not argument.startswith("--config="):
            continue
        taken = 1 if "=" in argument else 2
        path = argument.partition("=")[2] if taken == 1 else "".join(arguments[index + 1 : index + 2])
        # The import costs 0.05 s, and most services have no file.
        import yaml

        try:
            values = yaml.safe_load(Path(path).read_text())
        except OSError as error:
            raise BadInputError(f"--config {path}: {error.strerror}") from error
        # A ValueError means no UTF-8, or a date that no calendar has.
        except (ValueError, yaml.YAMLError) as error:
            raise BadInputError(f"--config {path}: not readable as YAML: {error}".replace("\n", " ")) from error
        if not isinstance(values, dict):
            raise BadInputError(f"--config {path}: write a mapping of setting names to values")
        return arguments[:index] + arguments[index + taken :], values
    return arguments, {}
