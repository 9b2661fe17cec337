"""The option `--exclude-problems`, as `excludeProblems` of each dataset."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from evalrun_data.records import Problem
from evalrun_runtime.exits import BadInputError

FLAG = "--exclude-problems"


def read_exclusions(given: Sequence[str], problems: Iterable[Problem]) -> dict[str, list[str]]:
    """Return the ids that each dataset leaves out.

    An id is left out of every dataset that has it. The file that `data audit-tests --output` writes names the datasets;
    datasets that are not judged here are skipped.

    Args:
        given: values of the flag, each a file or ids with commas between them.
        problems: all problems to be judged.

    Raises:
        BadInputError: a file cannot be used, no dataset has an id, or nothing of a dataset would be left.
    """
    known: dict[str, set[str]] = {}
    for problem in problems:
        known.setdefault(problem.dataset, set()).add(problem.problem_id)
    excluded: dict[str, list[str]] = {name: [] for name in known}
    for value in given:
        named = _read_ids(value)
        if isinstance(named, Mapping):
            places = {name: set(ids) for name, ids in named.items() if name in known}
            if named and not places:
                raise BadInputError(f"{FLAG} {value}: it names {', '.join(named)}, judged are {', '.join(known)}")
        else:
            places = {name: {each for each in named if each in ids} for name, ids in known.items()}
            _refuse_unknown(value, set(named).difference(*known.values()))
        for name, ids in places.items():
            _refuse_unknown(f"{value}: {name}", ids - known[name])
            excluded[name] += sorted(ids.difference(excluded[name]))
    for name, left_out in excluded.items():
        if len(left_out) == len(known[name]):
            raise BadInputError(f"{FLAG}: all problems of {name} are excluded: keep some, or leave its file away")
    return {name: left_out for name, left_out in excluded.items() if left_out}


def _read_ids(value: str) -> Mapping[str, list[str]] | list[str]:
    """Return the ids in a value, by dataset if the value names datasets."""
    file = Path(value)
    if not _is_file(file):
        return [name.strip() for name in value.split(",") if name.strip()]
    try:
        text = file.read_text(encoding="utf-8")
        if not text.lstrip().startswith("{"):
            return [line.strip() for line in text.splitlines() if line.strip()]
        content = json.loads(text)
    except (OSError, ValueError) as error:
        raise BadInputError(f"{FLAG} {value}: cannot be read: {' '.join(str(error).split())[:200]}") from error
    named = content.get("exclude")
    if not isinstance(named, dict) or not all(
        isinstance(ids, list) and all(isinstance(each, str) for each in ids) for ids in named.values()
    ):
        raise BadInputError(
            f"{FLAG} {value}: it has no 'exclude' with lists of ids by dataset: write one id a line, or name what "
            "evalrun data audit-tests --output wrote"
        )
    return named


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    # Many ids are longer than a file's name may be.
    except OSError:
        return False


def _refuse_unknown(where: str, names: set[str]) -> None:
    if names:
        shown = ", ".join(repr(name) for name in sorted(names)[:5])
        raise BadInputError(
            f"{FLAG} {where}: there is no problem {shown}: correct the id, or name a file that is there"
        )
