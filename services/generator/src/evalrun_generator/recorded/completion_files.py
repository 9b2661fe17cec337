"""Loads recorded completions from problem files and response files.

A chat model answers with a code block. A response whose `mode` marks its text as plain code (append, standalone) is
therefore wrapped in a code block for chat requests and served unchanged for completion requests.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from evalrun_data.prompts import render
from evalrun_data.readers import load_problem_files
from evalrun_data.responses import Response, load_responses
from evalrun_generator.recorded.recorded_completions import RecordedAnswer, RecordedCompletions
from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)

FENCE = "```"


def load_recorded_completions(
    problem_files: Sequence[str], response_files: Sequence[str], base_seed: int
) -> RecordedCompletions:
    """Load the files. Each problem is registered under its chat prompt and its completion prompt.

    Raises:
        BadInputError: a file cannot be used; the message names file and line.
    """
    problems = load_problem_files(problem_files)
    by_problem: dict[tuple[str, str], list[Response]] = {}
    for response in load_responses(response_files, problems):
        by_problem.setdefault((response.dataset, response.problem_id), []).append(response)
    completions = RecordedCompletions(base_seed)
    for problem in problems:
        samples = _group_by_sample(by_problem.get(problem.key, ()))
        chat = tuple((message.role, message.content) for message in render(problem, "Chat"))
        completion = render(problem, "Completion")[0].content
        label = f"{problem.dataset}/{problem.problem_id}"
        taken = completions.add(label, [chat], [_sample(turns, by_chat=True) for turns in samples])
        completions.add(label, [completion], [_sample(turns, by_chat=False) for turns in samples])
        if taken is not None:
            logger.warning("%s has the same prompt as %s, whose completions are used for both", label, taken)
    return completions


def _group_by_sample(responses: Iterable[Response]) -> list[list[Response]]:
    """Return the completions of each sample, in order of turn. Raises BadInputError if a turn is missing in between."""
    samples: dict[int, list[Response]] = {}
    for response in sorted(responses, key=lambda each: (each.sample, each.turn)):
        turns = samples.setdefault(response.sample, [])
        if response.turn != len(turns):
            raise BadInputError(
                f"responses: {response.dataset} {response.problem_id} sample {response.sample} has turn "
                f"{response.turn} but no turn {len(turns)}: add it"
            )
        turns.append(response)
    return list(samples.values())


def _sample(turns: Sequence[Response], *, by_chat: bool) -> RecordedAnswer:
    first, *later = (_answer(response, by_chat=by_chat) for response in turns)
    return replace(first, later=tuple(later))


def _answer(response: Response, *, by_chat: bool) -> RecordedAnswer:
    text = response.text
    if by_chat and response.mode != "auto" and text.strip() and FENCE not in text:
        text = f"{FENCE}{response.language}\n{text.rstrip()}\n{FENCE}"
    return RecordedAnswer(text, response.finish_reason or "stop", response.prompt_tokens, response.output_tokens)
