"""A tool for verl's multi-turn rollouts (0.9.1, `multi_turn.tool_config_path`): programs run in a session of the
reward service, and the last one is judged.

verl's loop creates and releases an instance for each call of a tool, so a session belongs to the trajectory
(`agent_data`) if there is any, and else to the instance.
"""

import asyncio
import uuid
import weakref
from typing import Any

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse

from evalrun_trainers.calls import RewardCalls, SessionOverError, StateLostError
from evalrun_trainers.client import NotJudgedError
from evalrun_trainers.options import RAISE, OptionsError, read_options
from evalrun_trainers.samples import plain

SCHEMA: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "run_program",
        "description": "Runs a Python program in a sandbox and returns what it did. The last program is judged.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "The whole program."}},
            "required": ["code"],
        },
    },
}
_STARTS = ("instance_hash", "ground_truth", "dataset", "language", "action")
_OWN = ("type",)
"""Keys that belong to verl's own tool configuration; everything else there is one of our options."""


class _Session:
    """A session of the service, started with its first action."""

    def __init__(self, start: dict[str, Any]) -> None:
        self.start = start
        self.sid = ""
        self.turns = 0
        # All calls of one turn arrive at once.
        self.lock = asyncio.Lock()


class EvalrunSessionTool(BaseTool):  # type: ignore[misc]  # verl has no types
    """Runs programs in a session. `config` holds options of evalrun, as EVALRUN_REWARD_* variables do."""

    def __init__(self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema | None) -> None:
        super().__init__(config, tool_schema)
        self._options = read_options({name: value for name, value in config.items() if name not in _OWN})
        self._calls = RewardCalls(self._options)
        self._instances: dict[str, _Session] = {}
        self._trajectories: weakref.WeakKeyDictionary[Any, _Session] = weakref.WeakKeyDictionary()

    def get_openai_tool_schema(self) -> OpenAIFunctionToolSchema:
        """Return the schema of the configuration, or else ours."""
        given = getattr(self, "tool_schema", None)
        return given or OpenAIFunctionToolSchema.model_validate(SCHEMA)

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:  # noqa: ANN401
        """Prepare a session; it starts with its first program.

        Args:
            instance_id: None creates a new id.
            kwargs: `create_kwargs`, from the row's `extra_info.tools_kwargs`: `instance_hash` names a problem that the
                service knows, or `ground_truth` holds the tests. Optional: `dataset`, `language`,
                `action`.

        Raises:
            OptionsError: it names neither.
        """
        given = plain(kwargs.get("create_kwargs") or {})
        if unknown := sorted(set(given) - set(_STARTS)):
            raise OptionsError(f"create_kwargs: unknown key {unknown[0]!r}: write one of {', '.join(_STARTS)}")
        if given.get("instance_hash") in (None, ""):
            if given.get("ground_truth") is None:
                raise OptionsError(
                    "create_kwargs: it names no instance_hash and holds no ground_truth: write one of them"
                )
            given["instance_hash"] = "ground_truth"
        instance_id = instance_id or str(uuid.uuid4())
        self._instances[instance_id] = _Session(given)
        return instance_id, ToolResponse()

    async def execute(
        self,
        instance_id: str,
        parameters: dict[str, Any],
        **kwargs: Any,  # noqa: ANN401 - verl's
    ) -> tuple[ToolResponse, float | None, dict[str, Any]]:
        """Run a program. Return the output without a reward: the session's reward comes at its end.

        A session that is lost or over, or a sandbox without an answer, is reported to the model; no reward follows.

        Raises:
            RefusedError: the service refuses the caller or the problem.
        """
        code = parameters.get("code")
        if not isinstance(code, str) or not code.strip():
            return ToolResponse(text="The argument 'code' is missing: write the whole program there."), None, {}
        session = self._session(instance_id, kwargs.get("agent_data"))
        async with session.lock:
            try:
                text = await self._act(session, code if "```" in code else f"```python\n{code}\n```")
            except StateLostError:
                session.sid, session.turns = "", 0
                text = "The session was lost, and a new one begins: run your program again."
            except SessionOverError as error:
                text = f"The session takes no more programs: {error}"
            except NotJudgedError:
                text = "The sandbox gave no answer: run your program again."
        return ToolResponse(text=text), None, {}

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float:  # noqa: ANN401 - verl's
        """Return the reward of the session's last program, 0 if it had none. The session takes no further programs.

        Raises:
            NotJudgedError: the program was not judged, or the session is lost, and `on_not_judged` is "raise".
            RefusedError: the service refuses the caller or the problem.
        """
        session = self._session(instance_id, kwargs.get("agent_data"))
        try:
            async with session.lock:
                await self._start(session)
                answer = await self._calls.post("/compute_reward", {"sid": session.sid})
        except NotJudgedError:
            if self._options.on_not_judged == RAISE:
                raise
            return float(self._options.on_not_judged)
        return float(answer["reward"])

    async def release(self, instance_id: str, **kwargs: Any) -> None:  # noqa: ANN401 - verl's
        """Forget an instance. The session stays with its trajectory; an abandoned session expires at the service."""
        self._instances.pop(instance_id, None)

    def _session(self, instance_id: str, trajectory: object | None) -> _Session:
        """Return the trajectory's session, or else the instance's. Raises OptionsError."""
        held = None if trajectory is None else self._trajectories.get(trajectory)
        if held is None:
            held = self._instances.get(instance_id)
            if held is None:
                raise OptionsError(f"instance {instance_id}: it was never created, or is released")
            if trajectory is not None:
                self._trajectories[trajectory] = held
        return held

    async def _start(self, session: _Session) -> None:
        if not session.sid:
            own = {"run": self._options.run, "shape": self._options.shape, "request_id": uuid.uuid4().hex}
            answer = await self._calls.post("/start_instance", {**session.start, **own})
            session.sid = str(answer["sid"])

    async def _act(self, session: _Session, content: str) -> str:
        await self._start(session)
        action = {"sid": session.sid, "content": content, "turn": session.turns}
        text = str((await self._calls.post("/process_action", action))["content"])
        session.turns += 1
        return text
