"""Loads completions made elsewhere as completions of the run: nothing is generated, they are only judged."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from evalrun_aggregator.ledger.entries import StoredCompletion
from evalrun_aggregator.ledger.items import MAX_SAMPLES, ItemKey
from evalrun_aggregator.start.datasets import RunDataset
from evalrun_aggregator.start.problems import RunProblems, draws_by_chance
from evalrun_api.run_config import RunConfig
from evalrun_data.digest import digest_records
from evalrun_data.responses import Response, load_responses
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_runtime.exits import BadInputError
from evalrun_runtime.unicode_text import replace_surrogates

MAX_ITEMS = 10_000_000
"""Maximum of problems x highest sample number: each takes a byte of memory."""

MODES = {
    "auto": judge_pb2.SUBMISSION_MODE_AUTO,
    "append": judge_pb2.SUBMISSION_MODE_APPEND,
    "standalone": judge_pb2.SUBMISSION_MODE_STANDALONE,
}


@dataclass(frozen=True)
class GivenResponses:
    """The given completions, ready for the ledger."""

    completions: Sequence[StoredCompletion]
    sha256: str
    asked: Sequence[int] = ()
    """Number of samples that each problem should have, by the dataset's number."""


def read_responses(order: RunConfig, datasets: Sequence[RunDataset]) -> tuple[RunProblems, GivenResponses]:
    """Read the response files of the run configuration, and number the problems with as many samples as given.

    Raises:
        BadInputError: a file, line or key cannot be used; there is no completion at all, or none for a problem that is
            not excluded; a sample number is too large.
    """
    problems = [problem for dataset in datasets for problem in dataset.problems]
    every = [problem for dataset in datasets for problem in (*dataset.problems, *dataset.excluded)]
    excluded = {problem.key for dataset in datasets for problem in dataset.excluded}
    found = load_responses(order.responses or [], every, order.base_dir)
    responses = [each for each in found if (each.dataset, each.problem_id) not in excluded]
    if not responses:
        but = " but to excluded problems" if found else ""
        raise BadInputError(f"responses: no answer{but} in {', '.join(order.responses or ['no file'])}")
    if (later := next((each for each in responses if each.turn), None)) is not None:
        raise BadInputError(
            f"responses: turn {later.turn} of {later.dataset} {later.problem_id}: single answers are judged here: keep "
            "turn 0 alone, or judge a run of several turns again by evalrun rejudge"
        )
    samples = 1 + max(response.sample for response in responses)
    if isinstance(order.answers_per_problem, int):
        if samples > order.answers_per_problem:
            raise BadInputError(
                f"responses: a problem has sample number {samples - 1}, and each should have "
                f"{order.answers_per_problem}: raise that number, or number samples from 0"
            )
        samples = order.answers_per_problem
    if order.k and max(order.k) > samples:
        raise BadInputError(
            f"k: pass@{max(order.k)} needs as many answers to a problem, and none has more than {samples}: write "
            f"numbers from 1 to {samples}"
        )
    if samples > MAX_SAMPLES or samples * len(problems) > MAX_ITEMS:
        raise BadInputError(
            f"responses: sample number {samples - 1} is too large for {len(problems)} problems: number samples from 0"
        )
    numbered = RunProblems(
        order.run, datasets, order.spec.protocol, samples=samples, repeats=0, by_chance=draws_by_chance(order)
    )
    completions = [make_completion(response, numbered) for response in responses]
    asked = count_asked_answers(order.answers_per_problem, [dataset.spec.name for dataset in datasets], responses)
    return numbered, GivenResponses(completions, digest_records(map(_select_judged_fields, responses)), asked)


def count_asked_answers(
    answers: int | Literal["AsGiven"] | None, datasets: Sequence[str], given: Sequence[Response]
) -> list[int]:
    """Return the expected number of samples per problem, by dataset.

    Args:
        answers: the number in the run configuration. None: each problem should have as many samples as the problem with
            the most in its dataset, and a single sample in a dataset without any.
        datasets: names of the datasets.
        given: the completions.
    """
    if answers == "AsGiven":
        return [0] * len(datasets)
    if answers is not None:
        return [answers] * len(datasets)
    most = dict.fromkeys(datasets, 1)
    for response in given:
        most[response.dataset] = max(most[response.dataset], response.sample + 1)
    return [most[name] for name in datasets]


def _select_judged_fields(response: Response) -> dict[str, object]:
    """Return what identifies a response. Turn 0 is omitted, so that digests of earlier versions stay valid."""
    return {name: value for name, value in dataclasses.asdict(response).items() if name != "turn"}


def make_completion(response: Response, problems: RunProblems) -> StoredCompletion:
    """Return a completion in the form of the ledger. Raises BadInputError if it cannot be stored."""
    key = ItemKey(response.dataset, response.problem_id, response.sample)
    index = problems.items.find_index(key)
    if index is None:
        raise BadInputError(f"responses: {key}: not a problem of this run")
    return StoredCompletion(
        row=problems.items.get_row(index),
        text=replace_surrogates(response.text),
        finish_reason=response.finish_reason,
        prompt_tokens=response.prompt_tokens,
        output_tokens=response.output_tokens,
        generation_seconds=response.generation_seconds or 0.0,
        attempts=0,
        mode=MODES[response.mode],
        language=response.language,
    )
