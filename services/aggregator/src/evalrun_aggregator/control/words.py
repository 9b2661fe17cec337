"""Converts acts of control to and from a command's words, such as `set concurrency=8`. Pure."""

from collections.abc import Sequence
from typing import Final

from evalrun_aggregator.control.acts import (
    MAX_IN_FLIGHT,
    Act,
    Pause,
    RequeueNotJudged,
    Resume,
    SetConcurrency,
    Stop,
)
from evalrun_runtime.exits import BadInputError

PLAIN: Final[dict[str, Act]] = {"pause": Pause(), "resume": Resume(), "requeue-not-judged": RequeueNotJudged()}
KEEP: Final = "--keep"
DEFAULT: Final = "default"
MAX_DIGITS: Final = 10
ALL: Final = "pause, resume, requeue-not-judged, set concurrency=N or stop --keep"


def act_of_words(words: Sequence[str]) -> Act:
    """Return the act that the words name. Raises BadInputError, which says what to write instead."""
    name, rest = (words[0], list(words[1:])) if words else ("", [])
    if name == "stop":
        if rest != [KEEP]:
            raise BadInputError(
                "stop ends the run with the answers that it has, which are marked partial: write stop --keep"
            )
        return Stop()
    if name == "set":
        return _parse_setting(rest)
    act = PLAIN.get(name)
    if act is None:
        raise BadInputError(f"{name or 'no act'}: write {ALL}")
    if rest:
        raise BadInputError(f"{' '.join(rest)}: {name} takes nothing more: leave it away")
    return act


def render_words(act: Act) -> list[str]:
    """Return the words that name an act."""
    if isinstance(act, SetConcurrency):
        return ["set", f"concurrency={DEFAULT if act.max_in_flight is None else act.max_in_flight}"]
    if isinstance(act, Stop):
        return ["stop", KEEP]
    return [next(name for name, plain in PLAIN.items() if plain == act)]


def _parse_setting(words: Sequence[str]) -> SetConcurrency:
    name, sign, value = words[0].partition("=") if len(words) == 1 else ("", "", "")
    if name != "concurrency" or not sign:
        raise BadInputError(f"{' '.join(['set', *words])}: write set concurrency=N")
    if value == DEFAULT:
        return SetConcurrency(None)
    number = int(value) if value.isascii() and value.isdecimal() and len(value) < MAX_DIGITS else None
    if number == 0:
        raise BadInputError("concurrency=0: write pause, which sends nothing more to the judge either")
    if number is None or number > MAX_IN_FLIGHT:
        raise BadInputError(
            f"concurrency={value[:40]}: write a number from 1 to {MAX_IN_FLIGHT}; {DEFAULT} is what the endpoints take"
        )
    return SetConcurrency(number)
