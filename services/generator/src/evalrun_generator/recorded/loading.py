"""Makes a recording from problem files and files of responses.

A model that is asked by chat answers with a code block. A response whose `mode` says that its text is code already
(append, standalone) is therefore served by chat inside a block of its language, and as it is by completion.
"""

import logging
from collections.abc import Sequence

from evalrun_data.prompts import render
from evalrun_data.readers import load_problem_files
from evalrun_data.responses import Response, load_responses
from evalrun_generator.recorded.recording import RecordedAnswer, Recording

logger = logging.getLogger(__name__)

FENCE = "```"


def load_recording(problem_files: Sequence[str], response_files: Sequence[str], base_seed: int) -> Recording:
    """Read the files; every problem is known by its chat and by its completion prompt.

    Raises:
        BadInputError: a file that cannot be used, with file and line.
    """
    problems = load_problem_files(problem_files)
    by_problem: dict[tuple[str, str], list[Response]] = {}
    for response in load_responses(response_files, problems):
        by_problem.setdefault((response.dataset, response.problem_id), []).append(response)
    recording = Recording(base_seed)
    for problem in problems:
        samples = sorted(by_problem.get(problem.key, ()), key=lambda response: response.sample)
        chat = tuple((message.role, message.content) for message in render(problem, "Chat"))
        completion = render(problem, "Completion")[0].content
        label = f"{problem.dataset}/{problem.problem_id}"
        taken = recording.add(label, [chat], [_answer(response, by_chat=True) for response in samples])
        recording.add(label, [completion], [_answer(response, by_chat=False) for response in samples])
        if taken is not None:
            logger.warning("%s has the prompt of %s, whose completions answer both", label, taken)
    return recording


def _answer(response: Response, *, by_chat: bool) -> RecordedAnswer:
    text = response.text
    if by_chat and response.mode != "auto" and text.strip() and FENCE not in text:
        text = f"{FENCE}{response.language}\n{text.rstrip()}\n{FENCE}"
    return RecordedAnswer(text, response.finish_reason or "stop", response.prompt_tokens, response.output_tokens)
