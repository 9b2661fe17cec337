"""A reward for the tasks of verifiers (0.4), which prime-rl trains on. Plug it into a taskset's configuration:

    [env.taskset.task.rewards.evalrun]
    fn = "evalrun_trainers.verifiers_reward:judged_reward"

A task's data has the field `ground_truth`, as the service's samples have; `data_source` and `language` serve too.
EVALRUN_REWARD_* variables are the options.
"""

import asyncio
from typing import Any

from verifiers.v1.errors import SandboxError

from evalrun_trainers.client import NotJudgedError, RefusedError, choose_reward, client_for
from evalrun_trainers.options import read_options
from evalrun_trainers.samples import make_sample


async def judged_reward(task: Any, trace: Any) -> float:  # noqa: ANN401 - a TaskData of the user's, a Trace
    """Return the reward of a trace's last reply.

    Raises:
        SandboxError: there is no verdict, or the service refuses the caller; verifiers records it on the trace, and the
            reward stays None.
        InvalidSampleError: the task holds no tests; verifiers records it as an error of the task.
    """
    options = read_options({})
    extra = {"truncated": trace.is_truncated, "language": getattr(task, "language", None)}
    prompt = task.prompt_text
    sample = make_sample(
        getattr(task, "data_source", ""),
        trace.last_reply,
        getattr(task, "ground_truth", None),
        {**extra, **({"problem_prompt": prompt} if prompt else {})},
    )
    try:
        result = await asyncio.wrap_future(client_for(options).submit(sample))
        return choose_reward(result, options)
    except (NotJudgedError, RefusedError) as error:
        raise SandboxError(f"evalrun: {error}") from error
