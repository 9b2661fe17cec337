"""A trainer's options for rewards: keyword arguments override EVALRUN_REWARD_* variables, which override defaults."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import urlsplit

SHAPES = ("dense", "sparse")
RAISE = "raise"
INSTEAD_OF_REWARD = ("on_not_judged", "on_invalid")
"""Options that name the number used where there is no reward."""


class OptionsError(ValueError):
    """An option cannot be used; the message names the option and what to write instead."""


@dataclass(frozen=True)
class Options:
    """Options of reward requests."""

    url: str = "http://127.0.0.1:8090"
    """The reward service; several replicas with commas between them."""
    token: str = ""
    """The service's token. Better set as EVALRUN_REWARD_TOKEN: a trainer prints its configuration."""
    run: str = ""
    """Name of the run: the service and the judge share their places fairly between runs."""
    shape: str = "dense"
    """`dense` is the share of tests passed; `sparse` is 1 for an accepted completion, else 0."""
    on_not_judged: str | float = RAISE
    """Value of a sample that the judge could not decide: "raise" NotJudgedError, "nan", or a number."""
    on_invalid: str | float = RAISE
    """Value of a sample that cannot be judged as it is written: "raise" InvalidSampleError, "nan", or a number."""
    timeout_seconds: float = 900.0
    """Maximum seconds for one sample, retries included."""
    max_batch: int = 128
    """Maximum number of samples in one request."""
    linger_seconds: float = 0.005
    """Seconds that the first sample of a request waits for others."""
    connections: int = 16
    """Most requests at once."""

    def __post_init__(self) -> None:
        """Check. Raises OptionsError."""
        for address in self.urls:
            parts = urlsplit(address)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise OptionsError(f"url {address!r}: write http://HOST:PORT")
        if not self.urls:
            raise OptionsError("url is empty: write http://HOST:PORT, or set EVALRUN_REWARD_URL")
        if self.shape not in SHAPES:
            raise OptionsError(f"shape {self.shape!r}: write one of {', '.join(SHAPES)}")
        for name in INSTEAD_OF_REWARD:
            if isinstance(value := getattr(self, name), str) and value != RAISE:
                raise OptionsError(f"{name} {value!r}: write raise, nan, or a number")
        for name in ("timeout_seconds", "max_batch", "connections"):
            if not getattr(self, name) > 0:
                raise OptionsError(f"{name} {getattr(self, name)!r}: write a number above 0")
        if not self.linger_seconds >= 0:
            raise OptionsError(f"linger_seconds {self.linger_seconds!r}: write 0 or more")

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses of the service."""
        return tuple(part.strip().rstrip("/") for part in self.url.split(",") if part.strip())


def read_options(given: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Options:
    """Return the options of keyword arguments and environment. Raises OptionsError; names an unknown argument too.

    Args:
        given: keyword arguments; None counts as not given.
        environment: EVALRUN_REWARD_URL for `url`, and so on.
    """
    known = {field.name: field for field in fields(Options)}
    if unknown := sorted(set(given) - set(known)):
        raise OptionsError(f"unknown option {unknown[0]!r}: write one of {', '.join(known)}")
    values: dict[str, Any] = {}
    for name, field in known.items():
        value = given.get(name)
        if value is None:
            value = environment.get(f"EVALRUN_REWARD_{name.upper()}")
        if value is not None:
            values[name] = _convert_value(name, value, field.default)
    return Options(**values)


def _convert_value(name: str, value: Any, default: object) -> Any:  # noqa: ANN401 - of whatever type the option is
    if name in INSTEAD_OF_REWARD:
        return _instead_of_reward(name, value)
    kind: type[Any] = type(default)
    try:
        return kind(value)
    except (TypeError, ValueError) as error:
        raise OptionsError(f"{name} {value!r}: write a {kind.__name__}") from error


def _instead_of_reward(name: str, value: Any) -> str | float:  # noqa: ANN401 - text or number
    if isinstance(value, str) and value.strip().lower() == RAISE:
        return RAISE
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise OptionsError(f"{name} {value!r}: write raise, nan, or a number") from error
