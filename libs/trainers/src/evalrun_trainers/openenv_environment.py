"""An environment of OpenEnv (0.10) whose reward is the judge's. Serve it beside a reward service:

    EVALRUN_REWARD_URL=http://judge:8090 EVALRUN_OPENENV_TASKS=tasks.jsonl \\
        uvicorn --factory evalrun_trainers.openenv_environment:app

Each line of the file has `prompt` and `ground_truth`, as the service's samples have; `data_source` and `language` serve
too. An episode is one task and one answer. EVALRUN_REWARD_* variables are the options.
"""

import asyncio
import os
import random
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

from evalrun_trainers.tasks import judge_answer, read_tasks

TASKS_VARIABLE = "EVALRUN_OPENENV_TASKS"


class AnswerAction(Action):  # type: ignore[misc] # absent where types are checked
    """An answer to the task."""

    answer: str


class TaskObservation(Observation):  # type: ignore[misc] # absent where types are checked
    """The task and, after the completion, its reward; there is no reward without a verdict."""

    prompt: str = ""
    final_status: str = ""
    """How the program ended, e.g. wrong_answer."""


class NoTaskError(Exception):
    """A step without a reset, or a reset for a task that is not there."""


class JudgedEnvironment(Environment):  # type: ignore[misc] # absent where types are checked
    """One task per episode, drawn by the seed, or named by `task`."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, tasks: Sequence[Mapping[str, Any]]) -> None:
        super().__init__()
        self._tasks = tasks
        self._task: Mapping[str, Any] | None = None
        self._state = State()

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: int | None = None,
        **others: Any,  # noqa: ANN401 - whatever a client sends
    ) -> TaskObservation:
        """Begin an episode. Raises NoTaskError if `task` is no line of the file, counted from 0."""
        del others
        number = random.Random(seed).randrange(len(self._tasks)) if task is None else task  # noqa: S311 - no secret
        if not 0 <= number < len(self._tasks):
            raise NoTaskError(f"task {number}: there are {len(self._tasks)}, counted from 0")
        self._task = self._tasks[number]
        self._state = State(episode_id=episode_id or uuid.uuid4().hex, task=number)
        return TaskObservation(prompt=self._task["prompt"])

    def step(
        self,
        action: AnswerAction,
        timeout_s: float | None = None,
        **others: Any,  # noqa: ANN401 - whatever a client sends
    ) -> TaskObservation:
        """Judge the answer. Raises as `step_async`."""
        return asyncio.run(self.step_async(action, timeout_s, **others))

    async def step_async(
        self,
        action: AnswerAction,
        timeout_s: float | None = None,
        **others: Any,  # noqa: ANN401 - whatever a client sends
    ) -> TaskObservation:
        """Judge the answer; its reward ends the episode.

        Raises:
            NotJudgedError: there is no verdict. The client's step fails, so that no trainer mistakes it for a reward of
                0; the same step may be tried again.
            NoTaskError: no episode has begun, or it is over.
        """
        del timeout_s, others
        task = self._task
        if task is None:
            raise NoTaskError("reset first: an episode is one task and one answer")
        reward, final_status = await judge_answer(task, action.answer)
        self._task = None
        self._state.step_count += 1
        return TaskObservation(done=True, reward=reward, prompt=task["prompt"], final_status=final_status)

    @property
    def state(self) -> State:
        """The episode's id and task."""
        return self._state


def app() -> Any:  # noqa: ANN401 - FastAPI, which types are checked without
    """Return the server's application for the file that EVALRUN_OPENENV_TASKS names."""
    tasks = read_tasks(Path(os.environ[TASKS_VARIABLE]))
    return create_fastapi_app(lambda: JudgedEnvironment(tasks), AnswerAction, TaskObservation, max_concurrent_envs=1000)
