"""An environment of the Open Reward Standard (openreward 0.1) whose reward is the judge's. Beside a reward service:

    EVALRUN_REWARD_URL=http://judge:8090 EVALRUN_ORS_TASKS=tasks.jsonl \\
        uvicorn --factory evalrun_trainers.ors_environment:app

Each line of the file has `prompt` and `ground_truth`, as the service's samples have; `data_source` and `language` serve
too. An episode is one task and one answer: the model's first message. EVALRUN_REWARD_* variables are the options.
"""

import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openreward.environments import Environment, Server, Split, TextBlock, ToolOutput, terminal, tool
from openreward.environments.types import BaseModel

from evalrun_trainers.tasks import judge_answer, read_tasks

TASKS_VARIABLE = "EVALRUN_ORS_TASKS"
SPLIT = "train"


class Answer(BaseModel):  # type: ignore[misc] # absent where types are checked
    """An answer to the task."""

    answer: str


class UnknownTaskError(Exception):
    """A session for a task that is not there."""


class Judged(Environment):  # type: ignore[misc] # absent where types are checked
    """One task per session. A task that a client sees holds no ground truth: it is its number in the file."""

    @classmethod
    def list_splits(cls) -> Sequence[Split]:
        """Return the file's single split."""
        return [Split(name=SPLIT, type=SPLIT)]

    @classmethod
    def list_tasks(cls, split: str) -> Sequence[Mapping[str, Any]]:
        """Return the tasks' numbers, counted from 0; empty for another split."""
        return [{"task": number} for number in range(len(_tasks()))] if split == SPLIT else []

    def get_prompt(self) -> Sequence[TextBlock]:
        """Return the task. Raises UnknownTaskError."""
        return [TextBlock(text=self._task()["prompt"])]

    @terminal  # type: ignore[untyped-decorator] # absent where types are checked
    @tool  # type: ignore[untyped-decorator]
    async def submit(self, args: Answer) -> ToolOutput:
        """Judge the answer; the episode is over then.

        Raises:
            NotJudgedError: there is no verdict. The client's call raises ToolFailed and its session is over, so that no
                trainer takes it for a reward of 0: the rollout has to be left out, or begun again.
            UnknownTaskError: there is no such task.
        """
        reward, final_status = await judge_answer(self._task(), args.answer)
        said = TextBlock(text=final_status)
        return ToolOutput(blocks=[said], reward=reward, finished=True, metadata={"final_status": final_status})

    def _task(self) -> Mapping[str, Any]:
        number, tasks = self.task_spec.get("task"), _tasks()
        if not isinstance(number, int) or not 0 <= number < len(tasks):
            raise UnknownTaskError(f"task {number}: there are {len(tasks)}, counted from 0")
        return tasks[number]


@functools.cache
def _tasks() -> Sequence[Mapping[str, Any]]:
    return read_tasks(Path(os.environ[TASKS_VARIABLE]))


def app() -> Any:  # noqa: ANN401 - FastAPI, which types are checked without
    """Return the server's application for EVALRUN_ORS_TASKS. Raises ValueError if that file has no tasks."""
    _tasks()
    return Server([Judged]).app
