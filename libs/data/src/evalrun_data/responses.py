"""Reads completions made elsewhere and assigns each to its problem.

The judge extracts the program from a completion.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from evalrun_data import demo
from evalrun_data.formats.evalplus import BASE_SUFFIX
from evalrun_data.formats.record import parse_language
from evalrun_data.formats.verl import verl_problem_id, verl_prompt
from evalrun_data.mistakes import Mistakes
from evalrun_data.published_answers import our_rows, read_filter
from evalrun_data.records import Problem
from evalrun_data.rows import Row
from evalrun_data.sources import BUILTIN_SCHEME, Source
from evalrun_runtime.exits import BadInputError
from evalrun_runtime.unicode_text import replace_surrogates

Mode = Literal["auto", "append", "standalone"]
_MODES: Final[Mapping[str, Mode]] = {
    "auto": "auto",
    "append": "append",
    "standalone": "standalone",
    "full": "standalone",
}

_TEXT_FIELDS: Final = ("response", "completion", "responses", "completions")
_ID_FIELDS: Final = ("problem_id", "task_id")
_TOKEN_FIELDS: Final = ("output_tokens", "completion_tokens")


@dataclass(frozen=True, slots=True)
class Response:
    """A response to a problem."""

    dataset: str
    problem_id: str
    sample: int
    text: str
    """Text as the model returned it; may be empty."""
    mode: Mode = "auto"
    """`auto`: extract the program; `append`: it is prompt + text; `standalone`: the text is the program."""
    language: str = "python"
    finish_reason: str = ""
    """`length` marks a completion that was cut at the token limit; empty if unknown."""
    output_tokens: int | None = None
    prompt_tokens: int | None = None
    generation_seconds: float | None = None
    turn: int = 0
    """0: the first completion; later completions followed feedback."""

    @property
    def key(self) -> tuple[str, str, int]:
        """(dataset, problem_id, sample)."""
        return self.dataset, self.problem_id, self.sample

    @property
    def truncated(self) -> bool:
        """Whether the model was stopped at its token limit."""
        return self.finish_reason == "length"


def load_responses(sources: Sequence[str], problems: Sequence[Problem], base_dir: Path = Path()) -> list[Response]:
    """Return the responses in these files, in order, each assigned to a problem.

    An answer without `sample` gets its problem's lowest free number, in order. `builtin:demo` names the demo's
    recorded answers.

    Raises:
        BadInputError: one line per mistake, with file and line: a broken file or line, a missing field, an unknown
            problem, dataset, mode or language, a problem id of several datasets without `dataset`, a repeated (problem,
            sample, turn).
    """
    index = _ProblemIndex(problems)
    mistakes = Mistakes()
    found: list[tuple[Response, Row | None, bool]] = []
    for source in sources:
        if source.startswith(BUILTIN_SCHEME):
            demo.check_name(source)
            found.extend((response, None, True) for response in _demo_responses(index))
        else:
            with Source(source, base_dir) as opened:
                for row in mistakes.watch_items(_one_filter(opened.rows(broken=mistakes.add))):
                    mistakes.count_row()
                    try:
                        for ours in our_rows(row):
                            found.extend((response, ours, ours.has("sample")) for response in _answers(ours, index))
                    except BadInputError as error:
                        mistakes.add(error)
    numbered = list(_number_samples(found, mistakes))
    mistakes.raise_found()
    return numbered


def _one_filter(rows: Iterable[Row]) -> Iterator[Row]:
    """Refuse a file of lm-evaluation-harness with several filters: each answer would count once a filter."""
    first: str | None = None
    for row in rows:
        name = read_filter(row)
        if name is not None:
            first = first or name
            if name != first:
                raise row.error(
                    f"field 'filter' is '{name}' after '{first}': every answer is there once a filter; keep the rows "
                    "of the filter that is to be judged"
                )
        yield row


def _number_samples(found: Sequence[tuple[Response, Row | None, bool]], mistakes: Mistakes) -> Iterator[Response]:
    """Record repeated samples, and number those without a number in order."""
    taken: dict[tuple[str, str, int, int], str] = {}
    for response, row, explicit in found:
        if explicit:
            where = row.where if row else "builtin:demo"
            key = (*response.key, response.turn)
            if key in taken:
                of_turn = f", turn {response.turn}," if response.turn else ""
                what = f"sample {response.sample} of problem '{response.problem_id}'{of_turn} is there twice"
                mistakes.add(BadInputError(f"{where}: {what} (first {taken[key]})"))
            taken.setdefault(key, where)
    next_free: dict[tuple[str, str, int], int] = {}
    for response, _, explicit in found:
        if explicit:
            yield response
            continue
        unnumbered = response.dataset, response.problem_id, response.turn
        number = next_free.get(unnumbered, 0)
        while (response.dataset, response.problem_id, number, response.turn) in taken:
            number += 1
        next_free[unnumbered] = number + 1
        yield replace(response, sample=number)


def _answers(row: Row, index: "_ProblemIndex") -> Iterator[Response]:
    """Yield the responses of a row: a single response, or the items of its list."""
    problem = index.find(row)
    base = index.find_base(problem)
    text_field = next((name for name in _TEXT_FIELDS if row.has(name)), "response")
    tokens_field = next((name for name in _TOKEN_FIELDS if row.has(name)), _TOKEN_FIELDS[0])
    spelt = row.optional_text("mode") or "auto"
    mode = _MODES.get(spelt)
    if mode is None:
        raise row.error(f"field 'mode' is '{spelt}' (known: {', '.join(_MODES)})")
    for answer in _split_row(
        row, text_field, ("sample", "turn", "finish_reason", tokens_field, "prompt_tokens", "generation_seconds")
    ):
        response = Response(
            dataset=problem.dataset,
            problem_id=problem.problem_id,
            sample=answer.optional_count("sample") or 0,
            text=_as_written(answer, text_field),
            mode=mode,
            language=parse_language(row, problem.language),
            finish_reason=_as_written(answer, "finish_reason") if answer.has("finish_reason") else "",
            output_tokens=answer.optional_count(tokens_field),
            prompt_tokens=answer.optional_count("prompt_tokens"),
            generation_seconds=answer.optional_number("generation_seconds"),
            turn=answer.optional_count("turn") or 0,
        )
        yield response
        if base is not None:
            yield replace(response, dataset=base.dataset)


def _as_written(row: Row, field: str) -> str:
    r"""Return a text of a model or its server; a lone surrogate (`"\ud800"`), which no file can hold, becomes U+FFFD.

    A model may write anything: one odd answer must not end the judging of all.
    """
    value = row.values.get(field)
    return replace_surrogates(value) if isinstance(value, str) and not value.isascii() else row.text(field)


def _split_row(row: Row, text_field: str, others: Sequence[str]) -> Iterator[Row]:
    """Yield a row per text. If the row holds a list of texts, its other per-response fields must be lists of that
    length."""
    texts = row.values.get(text_field)
    if not isinstance(texts, list):
        yield row
        return
    if not texts:
        raise row.error(f"field '{text_field}' is an empty list: it should hold at least one answer")
    lists = {text_field: texts}
    for name in others:
        value = row.values.get(name)
        if isinstance(value, list) and len(value) == len(texts):
            lists[name] = value
        elif value is not None and not (len(texts) == 1 and not isinstance(value, list)):
            raise row.error(f"field '{name}' should be a list of {len(texts)}, as '{text_field}' is")
    for number in range(len(texts)):
        yield row.replace_fields(**{name: values[number] for name, values in lists.items()})


class _ProblemIndex:
    """Finds the problem that a row answers."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self._by_id: dict[str, list[Problem]] = {}
        self._by_prompt: dict[str, list[Problem]] = {}
        self._datasets = sorted({problem.dataset for problem in problems})
        for problem in problems:
            self._by_id.setdefault(problem.problem_id, []).append(problem)
            self._by_prompt.setdefault(problem.prompt, []).append(problem)

    def find(self, row: Row) -> Problem:
        """Return the problem with this id; a verl row (`prompt`, `data_source`) without an id is found by its
        prompt."""
        dataset = row.name("dataset") if row.has("dataset") else None
        if dataset is not None and dataset not in self._datasets:
            raise row.error(f"unknown dataset '{dataset}' (the problems hold: {', '.join(self._datasets) or 'none'})")
        field = next((name for name in _ID_FIELDS if row.has(name)), None)
        if field is None:
            if row.has("prompt") and (row.has("data_source") or row.has("reward_model")):
                return self._find_by_prompt(row, dataset)
            raise row.wrong(_ID_FIELDS[0], "text; task_id serves too")
        return self._find_by_id(row, field, dataset)

    def _find_by_id(self, row: Row, field: str, dataset: str | None) -> Problem:
        value = row.values[field]
        spelt = str(value) if isinstance(value, int) and not isinstance(value, bool) else row.name(field)
        candidates = [problem for name in _id_spellings(spelt) for problem in self._by_id.get(name, ())]
        if dataset is not None:
            candidates = [problem for problem in candidates if problem.dataset == dataset]
        if not candidates:
            raise row.error(f"unknown problem '{spelt}'" + (f" in dataset '{dataset}'" if dataset else ""))
        if len(candidates) == 2 and candidates[1] is self.find_base(candidates[0]):
            return candidates[0]
        if len(candidates) > 1:
            names = ", ".join(problem.dataset for problem in candidates)
            raise row.error(f"problem '{spelt}' is in several datasets ({names}): add the field 'dataset'")
        return candidates[0]

    def find_base(self, problem: Problem) -> Problem | None:
        """EvalPlus' same problem with the base inputs alone, if it is there: an answer counts for both figures."""
        name = problem.dataset + BASE_SUFFIX
        return next((twin for twin in self._by_id.get(problem.problem_id, ()) if twin.dataset == name), None)

    def _find_by_prompt(self, row: Row, dataset: str | None) -> Problem:
        """Return the problem with the row's prompt; if prompts repeat, the data source and then the id decide. verl's
        generation keeps these columns of its problems."""
        candidates = [
            problem for problem in self._by_prompt.get(verl_prompt(row), ()) if dataset in (None, problem.dataset)
        ]
        if len(candidates) > 1 and row.has("data_source"):
            source = row.name("data_source")
            candidates = [problem for problem in candidates if problem.data_source == source] or candidates
        if len(candidates) > 1:
            own = verl_problem_id(row)
            candidates = [problem for problem in candidates if problem.problem_id == own] or candidates
        if not candidates:
            raise row.error("the prompt is none of the problems'; add the field 'problem_id'")
        if len(candidates) > 1:
            raise row.error(
                f"the prompt is that of {len(candidates)} problems: add the fields 'problem_id' and 'dataset'"
            )
        return candidates[0]

    def select_dataset(self, dataset: str) -> list[Problem]:
        return [problem for found in self._by_id.values() for problem in found if problem.dataset == dataset]


_NUMBERED: Final = re.compile(r"(?:(mbpp|humaneval)/)?(\d+)", re.IGNORECASE)


def _id_spellings(spelt: str) -> tuple[str, ...]:
    """Return the spellings of an id in records: MBPP's task ids are published as numbers, and EvalPlus writes
    `Mbpp/11`."""
    match = _NUMBERED.fullmatch(spelt)
    if match is None:
        return (spelt,)
    family, number = match.groups()
    names = {None: ("MBPP/", "HumanEval/"), "mbpp": ("MBPP/",), "humaneval": ("HumanEval/",)}
    return tuple(dict.fromkeys([spelt, *(name + number for name in names[family and family.lower()])]))


def _demo_responses(index: _ProblemIndex) -> Iterator[Response]:
    """Yield the demo's recorded answers to the requested problems."""
    wanted = {problem.problem_id for problem in index.select_dataset(demo.DATASET)}
    for answer in demo.answers():
        if answer.problem_id in wanted:
            yield Response(
                demo.DATASET, answer.problem_id, answer.sample, answer.text, finish_reason=answer.finish_reason
            )
