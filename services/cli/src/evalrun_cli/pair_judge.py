"""Asks a model behind an endpoint whether two problems are the same."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from evalrun_data.governance.meaning.pair_judge import (
    JudgedPairs,
    PairAnswer,
    Question,
    question_body,
    read_answer,
)
from evalrun_generator.endpoints.endpoint import Endpoint, HttpEndpoint, Timed, open_session
from evalrun_generator.endpoints.openai_api import CHAT_PATH, ModelRequest
from evalrun_generator.endpoints.retry import Backoff, RequestFailure, RetryAction
from evalrun_runtime.exits import BadInputError

CONCURRENT_QUESTIONS: Final = 8
ANSWER_SECONDS: Final = 120.0
ATTEMPTS: Final = 4
"""Maximum attempts of a question. The waits between them add up to at most 35 s, or to what the server asks for."""
BACKOFF: Final = Backoff(first=5.0, max_wait=20.0)
FIRST_QUESTION: Final = Question(
    "Write a function that returns the sum of a list of numbers.", "Return the total of all numbers in a list."
)


class EndpointFailedError(Exception):
    """The endpoint no longer replies; the message names the reason."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The endpoint refuses a question, and may accept others."""

    reason: str


class EndpointPairJudge:
    """A model at an OpenAI-compatible server."""

    def __init__(
        self,
        url: str,
        model: str,
        api_key: str | None,
        *,
        backoff: Backoff = BACKOFF,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        """`url`: as `base_url` returns it; `clock`: seconds."""
        self._url = url
        self._model = model
        self._api_key = api_key
        self._backoff = backoff
        self._clock = clock
        self._rng = rng or random.Random()  # noqa: S311 - for waits
        self._first_seconds = 0.0

    @property
    def model(self) -> str:
        """Name of the model."""
        return self._model

    @property
    def seconds_per_pair(self) -> float:
        """Seconds per pair as measured by the first question, with requests at the same time taken into account."""
        return self._first_seconds / CONCURRENT_QUESTIONS

    def try_question(self) -> None:
        """Send a first question and time it. Raises BadInputError if the endpoint gives no usable reply."""
        begin = self._clock()
        answered = asyncio.run(self._ask_all([FIRST_QUESTION], _report_nothing))
        self._first_seconds = self._clock() - begin
        if answered.outage:
            raise BadInputError(f"--pair-judge: {answered.outage}")
        if answered.refusal:
            raise BadInputError(f"--pair-judge: a first question was refused: {answered.refusal}")
        if answered.answers[0] is PairAnswer.UNDECIDED:
            raise BadInputError(
                f"--pair-judge {self._url}: {self._model} answered a first question with neither of the two words that "
                "it was asked for: name a model that follows instructions, at a server that takes response_format"
            )

    def judge(self, questions: Sequence[Question], report: Callable[[int], None]) -> JudgedPairs:
        """Ask every question, a few at a time. The failure of an endpoint is returned with the result, not raised."""
        return asyncio.run(self._ask_all(questions, report))

    async def _ask_all(self, questions: Sequence[Question], report: Callable[[int], None]) -> JudgedPairs:
        answers: list[PairAnswer | None] = [None] * len(questions)
        waiting = iter(enumerate(questions))
        outage = refusal = ""
        async with open_session(self._api_key) as session:
            endpoint = HttpEndpoint(session, self._url, self._model)

            async def work() -> None:
                nonlocal refusal
                for position, question in waiting:
                    answer = await ask(endpoint, question, self._model, self._backoff, self._rng)
                    if isinstance(answer, Refused):
                        refusal = answer.reason
                    answers[position] = PairAnswer.UNDECIDED if isinstance(answer, Refused) else answer
                    report(len(answers) - answers.count(None))

            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(CONCURRENT_QUESTIONS, len(questions))):
                        group.create_task(work())
            except* EndpointFailedError as failures:
                outage = str(failures.exceptions[0])
        return JudgedPairs(answers, outage, refusal)


async def ask(
    endpoint: Endpoint, question: Question, model: str, backoff: Backoff, rng: random.Random
) -> PairAnswer | Refused:
    """Return the model's judgement, or why the server refuses this question.

    Raises:
        EndpointFailedError: the endpoint did not reply in several attempts, or will accept no question.
    """
    request = ModelRequest(CHAT_PATH, question_body(question, model))
    for attempt in range(1, ATTEMPTS + 1):
        outcome = await endpoint.ask(request, ANSWER_SECONDS)
        if isinstance(outcome, Timed):
            return read_answer(outcome.answer.text)
        if outcome.action is RetryAction.REJECT:
            return Refused(_describe(endpoint, outcome))
        if outcome.action is RetryAction.ABORT or attempt == ATTEMPTS:
            raise EndpointFailedError(_describe(endpoint, outcome))
        await asyncio.sleep(max(backoff.delay(attempt, rng), outcome.retry_after or 0.0))
    raise EndpointFailedError(f"{endpoint.name}: no attempt was made")


def _describe(endpoint: Endpoint, failure: RequestFailure) -> str:
    return f"{endpoint.name}: {failure.reason}{failure.remedy}"


def _report_nothing(answers: int) -> None:
    """Ignore the result of the first question."""
