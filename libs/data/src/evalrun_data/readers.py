"""Reads problems: `load_problems` for a list, `iter_problems` for a stream. A row's fields tell its format.

Nothing is dropped in silence: a row that cannot be used ends the reading with a BadInputError naming file and line. The
rows after it are looked at first, so that the error names every mistake.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Final

from evalrun_data import demo
from evalrun_data.formats.aime import is_aime, parse_aime
from evalrun_data.formats.apps import is_apps, parse_apps
from evalrun_data.formats.bigcodebench import is_bigcodebench, parse_bigcodebench
from evalrun_data.formats.codecontests import (
    is_codecontests_plus,
    parse_codecontests,
    parse_codecontests_plus,
    parse_statement_and_tests,
)
from evalrun_data.formats.evalplus import BASE_SUFFIX, is_evalplus, parse_evalplus
from evalrun_data.formats.fusion_rows import is_fusion_row, parse_fusion_row
from evalrun_data.formats.humaneval import parse_humaneval
from evalrun_data.formats.humaneval_x import is_humaneval_x, parse_humaneval_x
from evalrun_data.formats.livecodebench import is_livecodebench, parse_livecodebench
from evalrun_data.formats.mbpp import REGRESSION_IDS, parse_mbpp, task_number
from evalrun_data.formats.multipl_e import is_multipl_e, parse_multipl_e
from evalrun_data.formats.plain_text import is_plain_text, parse_plain_text
from evalrun_data.formats.record import parse_record
from evalrun_data.formats.reference import parse_reference
from evalrun_data.formats.unsupported import refuse_unsupported
from evalrun_data.formats.verl import make_dataset_name, parse_verl
from evalrun_data.mistakes import Mistakes
from evalrun_data.records import TEST_GROUPS, Problem, StdioTests
from evalrun_data.rows import Row
from evalrun_data.shards import list_files
from evalrun_data.sources import Source
from evalrun_runtime.exits import BadInputError

Parser = Callable[[Row, str | None], Problem]
Graded = Callable[[str], bool]
"""Whether a grader, and no test, decides on rows of a data source."""

_TOLD_BY_FIELDS: Final[tuple[tuple[Callable[[Row], bool], Parser], ...]] = (
    (is_bigcodebench, parse_bigcodebench),
    (is_evalplus, parse_evalplus),
    (is_livecodebench, parse_livecodebench),
    (is_apps, parse_apps),
    (is_codecontests_plus, parse_codecontests_plus),
    (is_multipl_e, parse_multipl_e),
    (is_humaneval_x, parse_humaneval_x),
    (is_fusion_row, parse_fusion_row),
    (is_aime, parse_aime),
)
"""Formats whose fields no other format has. They are checked before the file's name, and before records."""

_PUBLISHED_NAME: Final = re.compile(r"(?:^|[/\\])(humaneval|mbpp)\.jsonl(?:\.gz)?$", re.IGNORECASE)


def load_problems(
    source: str, dataset: str | None = None, base_dir: Path = Path(), *, tests: Collection[str] = ()
) -> list[Problem]:
    """Return the problems of a source, in its order.

    Args:
        source: a path (relative to `base_dir`), `file://`, any fsspec URL, or `builtin:demo`.
        dataset: take this dataset's problems; None takes all.
        base_dir: where relative paths start: the directory of the file that names the source.
        tests: groups of contest tests to keep (public, private, generated); empty keeps all.

    Raises:
        BadInputError: one line naming what is wrong and where: a missing, empty or broken file, a malformed line, a
            missing field, a problem without tests, a repeated problem, a dataset that the source does not hold.
    """
    return list(iter_problems(Source(source, base_dir), dataset, tests=tests))


def load_problem_files(sources: Sequence[str], base_dir: Path = Path(), graded: Graded | None = None) -> list[Problem]:
    """Return the problems of several sources, each with all its datasets. A problem in two of them is an error."""
    every = (_iter_rows(Source(source, base_dir), None, graded) for source in sources)
    return list(_unique(chain.from_iterable(every)))


def merge_sources(of_sources: Iterable[tuple[str, Iterable[Problem]]]) -> Iterator[Problem]:
    """Yield the problems of several sources without repeats. A problem in two sources must be the same in both.

    Args:
        of_sources: the name of each source in messages, and its problems.

    Raises:
        BadInputError: two sources have different problems with the same dataset and id; the message names both
            sources.
    """
    seen: dict[tuple[str, str], tuple[bytes, str]] = {}
    for where, problems in of_sources:
        for problem in problems:
            content = hashlib.sha256(repr(problem).encode("utf-8", "surrogatepass")).digest()
            known = seen.get(problem.key)
            if known is None:
                seen[problem.key] = content, where
                yield problem
            elif known[0] != content:
                raise BadInputError(
                    f"{where}: problem '{problem.problem_id}' of dataset '{problem.dataset}' is another one in "
                    f"{known[1]}: leave one of the two out, or give their datasets different names"
                )


def iter_problems(
    source: Source, dataset: str | None = None, *, tests: Collection[str] = (), graded: Graded | None = None
) -> Iterator[Problem]:
    """Yield the problems of `load_problems` without holding them all: a training split does not fit into memory.

    Rows of verl's layout or our record whose data source is `graded` become problems with a `Reference`.
    """
    unknown = sorted(set(tests) - set(TEST_GROUPS))
    if unknown:
        raise BadInputError(f"{source.name}: unknown group of tests '{unknown[0]}' (known: {', '.join(TEST_GROUPS)})")
    # Naming all groups selects nothing, whether or not a file has them.
    narrowed = 0 < len(set(tests)) < len(TEST_GROUPS)
    present: dict[str, None] = {}
    found = False
    for problem in _unique(_iter_rows(source, dataset, graded)):
        present[problem.dataset] = None
        if dataset is None or problem.dataset == dataset:
            found = True
            yield _select_groups(problem, tests, source.name) if narrowed else problem
    if not found:
        raise BadInputError(f"{source.name}: no dataset '{dataset}' there (it holds: {', '.join(present) or 'none'})")


def iter_source_rows(
    source: str, dataset: str, base_dir: Path = Path(), *, plain_text: bool = False
) -> Iterator[tuple[Problem, Row]]:
    """Yield the problems of a dataset of a source with the row that each was read from.

    For fields that a problem does not keep, e.g. its published solution. A problem that is there twice is not looked
    for.

    Args:
        source: as `load_problems` has it.
        dataset: its name.
        base_dir: where relative paths start.
        plain_text: take rows without tests, too: texts and chats of training data.
    """
    for problem, row in _parse_rows(Source(source, base_dir), dataset, plain_text=plain_text):
        if problem.dataset == dataset:
            yield problem, row


def _iter_rows(source: Source, dataset: str | None, graded: Graded | None = None) -> Iterator[tuple[Problem, str]]:
    if source.is_builtin:
        demo.check_name(source.name)
        yield from ((problem, source.name) for problem in demo.problems())
        return
    yield from ((problem, row.where) for problem, row in _parse_rows(source, dataset, graded))


def _parse_rows(
    source: Source, dataset: str | None, graded: Graded | None = None, *, plain_text: bool = False
) -> Iterator[tuple[Problem, Row]]:
    with ExitStack() as opened:
        files = [opened.enter_context(file) for file in list_files(source)]
        yield from _rows_of_files(source.name, files, dataset, graded, plain_text=plain_text)


def _rows_of_files(
    source: str, files: Sequence[Source], dataset: str | None, graded: Graded | None, *, plain_text: bool
) -> Iterator[tuple[Problem, Row]]:
    published = _PUBLISHED_NAME.search(source)
    fixed = published.group(1).lower() if published else None
    name = fixed or dataset
    parser: Parser | None = None
    mistakes = Mistakes()
    for row in _rows_in_turn(files, mistakes):
        if parser is None:
            parser = _choose_parser(row, fixed, plain_text=plain_text)
            if parser is parse_evalplus:
                name = dataset
            if parser is parse_verl and dataset is not None:
                name = _verl_dataset(files, dataset)
            elif parser is parse_record and name is None and not row.has("dataset"):
                # Phase 0's own Parquet has no dataset's name, but its file does.
                name = _file_stem(source)
        try:
            problems = _problems_of_row(parser, row, name, dataset, graded)
        except BadInputError as error:
            mistakes.add(error)
            continue
        # The problem is yielded even after a mistake: a repeated problem is a separate mistake.
        yield from ((problem, row) for problem in problems)
    mistakes.raise_found()


def _problems_of_row(
    parser: Parser, row: Row, name: str | None, dataset: str | None, graded: Graded | None
) -> list[Problem]:
    """Return the problems of a row: none, one, or for EvalPlus two, the second with the base inputs alone."""
    if parser is parse_mbpp and dataset == "mbpp_reg":
        return [parser(row, dataset)] if task_number(row) in REGRESSION_IDS else []
    problem = parser(row, name) if graded is None else _parse_graded(parser, row, name, graded)
    if parser is parse_evalplus and dataset is None and row.values["base_input"]:
        return [problem, parser(row, problem.dataset + BASE_SUFFIX)]
    return [problem]


def choose_parser(row: Row, source: str) -> Parser:
    """Return the parser for a file with this first row. Raises BadInputError for an unknown format."""
    published = _PUBLISHED_NAME.search(source)
    return _choose_parser(row, published.group(1).lower() if published else None)


def choose_dataset_name(row: Row, source: str) -> str | None:
    """Return the dataset of a row that does not say; None if it does."""
    published = _PUBLISHED_NAME.search(source)
    if published:
        return published.group(1).lower()
    return None if row.has("dataset") or row.has("data_source") else _file_stem(source)


def _parse_graded(parser: Parser, row: Row, name: str | None, graded: Graded) -> Problem:
    if parser is parse_aime:
        return parse_aime(row, name, graded=True)
    for parse in (parse_verl, parse_record):
        if parser is parse and graded(row.optional_text("data_source", name or "")):
            return parse(row, name, parse_reference(row))
    return parser(row, name)


def _file_stem(source: str) -> str:
    return re.split(r"[/\\]", source)[-1].partition(".")[0]


def _rows_in_turn(files: Iterable[Source], mistakes: Mistakes) -> Iterator[Row]:
    """Yield the rows of each file, then close it: copies of remote shards do not pile up on the disk."""
    for file in files:
        with file:
            for row in file.rows(broken=mistakes.add):
                mistakes.count_row()
                yield row


def _verl_dataset(files: Sequence[Source], dataset: str) -> str | None:
    """Return the dataset name of verl rows: the requested name, unless it is one of the file's data sources."""
    rows = chain.from_iterable(file.rows(columns=("data_source",)) for file in files)
    sources = {make_dataset_name(row.optional_text("data_source")) for row in rows}
    return None if dataset in sources else dataset


def _choose_parser(row: Row, published: str | None, *, plain_text: bool = False) -> Parser:
    """Return the format of the first row, which the other rows must have, too."""
    refuse_unsupported(row)
    for is_it, parser in _TOLD_BY_FIELDS:
        if is_it(row):
            return parser
    # SandboxFusion's data in files of the same names consists of records, which have `problem_id`.
    if published and not row.has("problem_id"):
        return parse_mbpp if published == "mbpp" else parse_humaneval
    has = row.has
    if has("reward_model") or (has("data_source") and has("prompt") and not has("problem_id")):
        return parse_verl
    if has("problem_id") or has("ground_truth"):
        return parse_record
    if has("public_tests") or has("private_tests") or has("generated_tests"):
        return parse_codecontests
    if has("statement"):
        return parse_statement_and_tests
    if has("test_list") or (has("text") and has("code")):
        return parse_mbpp
    if has("task_id") and has("test"):
        return parse_humaneval
    if plain_text and is_plain_text(row):
        return parse_plain_text
    if has("task_id"):
        return parse_humaneval
    fields = ", ".join(list(row.values)[:8]) or "none"
    raise row.error(
        f"not a known problem format (fields: {fields}); a record needs dataset, problem_id, prompt and ground_truth: "
        "evalrun data check FILE prints one, and converts what is near"
    )


def _unique(problems: Iterable[tuple[Problem, str]]) -> Iterator[Problem]:
    seen: dict[tuple[str, str], str] = {}
    mistakes = Mistakes()
    for problem, where in mistakes.watch_items(problems):
        mistakes.count_row()
        first = seen.setdefault(problem.key, where)
        if first is not where:
            says = f"problem '{problem.problem_id}' of dataset '{problem.dataset}' is there twice (first {first})"
            mistakes.add(BadInputError(f"{where}: {says}"))
        elif not mistakes:
            yield problem
    mistakes.raise_found()


def _select_groups(problem: Problem, wanted: Collection[str], source: str) -> Problem:
    tests = problem.ground_truth
    if not isinstance(tests, StdioTests):
        return problem
    if not tests.groups:
        raise BadInputError(
            f"{source}: problem '{problem.problem_id}' does not say which group its tests are in: leave `tests` away"
        )
    kept = tests.select_groups(wanted)
    if not kept.count:
        raise BadInputError(f"{source}: problem '{problem.problem_id}' has no {' or '.join(sorted(wanted))} tests")
    return replace(problem, ground_truth=kept)
