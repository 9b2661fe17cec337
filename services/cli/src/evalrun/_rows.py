"""Writes rows that a caller holds in memory to JSONL files, which a run can read, and read again when it is resumed."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from evalrun_runtime.atomic_files import write_atomically
from evalrun_runtime.exits import BadInputError

PathLike: TypeAlias = str | Path
Rows: TypeAlias = "PathLike | Sequence[PathLike] | Iterable[Mapping[str, Any]] | Any"
"""Files, or rows: dicts, or a data frame of pandas, Polars, Arrow or `datasets`."""

_CONVERSIONS = (("to_dicts", ()), ("to_pylist", ()), ("to_list", ()), ("to_dict", ("records",)))
"""Methods that return the rows as dicts, with their arguments: of Polars, pyarrow, `datasets` and pandas."""


def resolve_files(given: Rows, argument: str, directory: Path) -> list[str]:
    """Return the files that an argument names; rows are written to a file in `directory` first.

    The file's name holds the checksum of its content: the same rows are found again by a resumed run.

    Raises:
        BadInputError: the argument is neither files nor rows, or a row is not JSON; the message names the row.
    """
    if isinstance(given, str | Path):
        return [str(given)]
    items = _items(given, argument)
    if items and all(isinstance(item, str | Path) for item in items):
        return [str(item) for item in items]
    content = b"".join(_line(item, f"{argument}[{index}]") for index, item in enumerate(items))
    if not content:
        raise BadInputError(f"{argument}: is empty: pass files or rows")
    file = directory / f"{argument}-{hashlib.sha256(content).hexdigest()[:16]}.jsonl"
    if not file.exists():
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(file, content)
    return [str(file)]


def _items(given: Any, argument: str) -> list[Any]:  # noqa: ANN401 - any library's data frame
    for method, arguments in _CONVERSIONS:
        if (convert := getattr(given, method, None)) is not None:
            return list(convert(*arguments))
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise BadInputError(
            f"{argument}: is a {type(given).__name__}: pass a file, several files, a list of dicts, or a data frame"
        )
    return list(given)


def _line(item: object, where: str) -> bytes:
    if not isinstance(item, Mapping):
        raise BadInputError(f"{where}: is a {type(item).__name__}: a row is a dict")
    # A data frame has NaN in a row without the field.
    row = {name: value for name, value in item.items() if not (isinstance(value, float) and math.isnan(value))}
    try:
        return json.dumps(row, default=_plain).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise BadInputError(f"{where}: cannot be written as JSON: {error}") from error


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a data frame's cell holds
    """Return numpy's scalars and arrays as Python's own. Raises TypeError for anything else."""
    for method in ("tolist", "item"):
        if (convert := getattr(value, method, None)) is not None:
            return convert()
    raise TypeError(f"a {type(value).__name__} has no JSON form")
