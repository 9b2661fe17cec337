"""Plans which bytes of a checkpoint's files belong where, in pieces that fit into a buffer. Pure."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from evalrun_generator.weights.checkpoint_files import StoredTensor, UnfitCheckpointError
from evalrun_generator.weights.parameter_layout import Place


@dataclass(frozen=True, slots=True)
class Columns:
    """The bytes that a move takes from each row of a file: the engine's GPU holds only these columns."""

    row: int
    """Bytes of a whole row."""
    first: int
    """First byte of the columns in a row."""
    width: int
    """Bytes of the columns."""


WHOLE: Final = Columns(1, 0, 1)
"""The file's bytes in their order."""


@dataclass(frozen=True, slots=True)
class Move:
    """Bytes of a file and their destination."""

    file: Path
    start: int
    """First byte of the first whole row in the file."""
    target: Any
    """torch tensor of uint8, flat, on the device."""
    columns: Columns = WHOLE


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a move."""

    move: Move
    offset: int
    """Offset in the target."""
    length: int
    """Number of the target's bytes."""
    start: int
    """Offset in the file."""
    read: int
    """Number of bytes to read from there."""


def make_move(stored: StoredTensor, place: Place, target: Any) -> Move:  # noqa: ANN401 - torch.Tensor
    """Return the move of a stored tensor's part to its destination.

    Args:
        stored: the tensor.
        place: which part of the tensor belongs where.
        target: the rows of the parameter, as flat bytes.
    """
    row = stored.length // stored.shape[0]
    columns = WHOLE
    if place.stored_columns is not None:
        first, last = (each * row // stored.shape[1] for each in place.stored_columns)
        columns = Columns(row, first, last - first)
    return Move(stored.file, stored.start + place.stored_first * row, target, columns)


def cut(move: Move, most: int) -> list[Piece]:
    """Return the pieces of a move, each of which reads a limited number of bytes.

    Raises:
        UnfitCheckpointError: a single row is longer than the limit.
    """
    total, columns = move.target.numel(), move.columns
    rows = most // columns.row
    if not rows:
        raise UnfitCheckpointError(f"{move.file}: a row of {columns.row} bytes is longer than {most}")
    found = []
    for first in range(0, total // columns.width, rows):
        count = min(rows, total // columns.width - first)
        begin = move.start + first * columns.row
        found.append(Piece(move, first * columns.width, count * columns.width, begin, count * columns.row))
    return found
