"""Collects the mistakes of a file, so that a user sees all of them and not the first alone."""

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from evalrun_runtime.exits import BadInputError

Item = TypeVar("Item")
MAX_MISTAKES: Final = 20
"""Maximum mistakes per file. With as many, reading ends: more would not help, and a file of another kind has a mistake
in every line."""
MAX_FURTHER_ROWS: Final = 10_000
"""Rows that are read after the first mistake, which may stand at the beginning of a very large file."""


class SeveralMistakesError(BadInputError):
    """Several mistakes in a file, one line each."""

    def __init__(self, mistakes: list[str]) -> None:
        first = "the first " if len(mistakes) >= MAX_MISTAKES else ""
        super().__init__("\n".join((f"{first}{len(mistakes)} mistakes:", *(f"  {each}" for each in mistakes))))
        self.mistakes = mistakes


class Mistakes:
    """The mistakes found so far."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self._further_rows = 0

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._found)

    def add(self, error: BadInputError) -> None:
        """Record a mistake, or several. Raises BadInputError with all of them once there are `MAX_MISTAKES`."""
        self._found += error.mistakes if isinstance(error, SeveralMistakesError) else [str(error)]
        if len(self._found) >= MAX_MISTAKES:
            self.raise_found()

    def count_row(self) -> None:
        """Count a row. Raises BadInputError where mistakes were found and enough rows were read since."""
        self._further_rows += bool(self._found)
        if self._further_rows > MAX_FURTHER_ROWS:
            self.raise_found()

    def watch_items(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items, and record the mistake that ends them, if any."""
        try:
            yield from items
        except BadInputError as error:
            self.add(error)

    def raise_found(self) -> None:
        """Raise BadInputError if there are mistakes."""
        if len(self._found) == 1:
            raise BadInputError(self._found[0])
        if self._found:
            raise SeveralMistakesError(self._found)
