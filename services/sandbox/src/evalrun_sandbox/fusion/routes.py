"""The routes: parse bodies, and return answers and refusals as JSON."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web
from pydantic import BaseModel

from evalrun_executor.api import UNKNOWN_LANGUAGE
from evalrun_registry.languages import find_fusion
from evalrun_sandbox.fusion import answer_body, answers, demand, notebooks
from evalrun_sandbox.fusion.bodies import InvalidBody, RequestT, read
from evalrun_sandbox.fusion.dataset_rows import RowDirectory
from evalrun_sandbox.fusion.dispatch import Dispatcher
from evalrun_sandbox.fusion.files import Files, Unplaceable, parse_files
from evalrun_sandbox.fusion.notebooks import Notebooks
from evalrun_sandbox.fusion.refusals import FusionRefusal, NotHere, TryAgain
from evalrun_sandbox.fusion.registry import find_family
from evalrun_sandbox.fusion.schemas import (
    DatasetRequest,
    GetMetricsRequest,
    GetPromptByIdRequest,
    GetPromptsRequest,
    Prompt,
    RunCodeRequest,
    RunJupyterRequest,
    SubmitRequest,
)
from evalrun_sandbox.fusion.submit_runs import Submissions
from evalrun_sandbox.sessions.sessions import Sessions

_RETRY_SECONDS = "1"
_SMALL_BYTES = 1 << 20
"""Size of a body above which it is parsed in a thread, because it would block the event loop."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FusionRoutes:
    """SandboxFusion's routes: `/run_code` always, `/run_jupyter` only with live sessions, `/submit` and the dataset
    routes only if rows are served."""

    def __init__(self, dispatcher: Dispatcher, rows: RowDirectory | None, pod_name: str | None = None) -> None:
        """Wire the routes.

        Args:
            dispatcher: runs programs.
            rows: the rows to serve; None disables `/submit` and the dataset routes.
            pod_name: reported as `executor_pod_name`.
        """
        self._dispatcher = dispatcher
        self._rows = rows
        self._pod_name = pod_name
        self._submissions = Submissions(dispatcher, pod_name)
        self._notebooks: Notebooks | None = None

    def add_routes(self, router: web.UrlDispatcher, sessions: Sessions | None = None) -> None:
        """Register every route of the API except `/v1/ping`, which the sandbox already has.

        Args:
            router: the application's router.
            sessions: sessions in which `/run_jupyter` runs; None disables that route.
        """
        self._notebooks = None if sessions is None else Notebooks(sessions, self._pod_name)
        router.add_post("/run_code", _answer_refusals(self._run_code))
        router.add_post("/run_jupyter", _answer_refusals(self._run_jupyter))
        router.add_get("/list_datasets", _answer_refusals(self._list_datasets))
        router.add_post("/list_ids", _answer_refusals(self._list_ids))
        router.add_post("/get_prompts", _answer_refusals(self._get_prompts))
        router.add_post("/get_prompt_by_id", _answer_refusals(self._get_prompt_by_id))
        router.add_post("/submit", _answer_refusals(self._submit))
        router.add_post("/get_metrics", _answer_refusals(self._get_metrics))
        router.add_post("/get_metrics_function", _answer_refusals(self._get_metrics_function))

    async def _run_code(self, request: web.Request) -> web.StreamResponse:
        wanted = await _parse_body(RunCodeRequest, request)
        weight = len(await request.read())
        try:
            given = parse_files(wanted) if weight <= _SMALL_BYTES else await asyncio.to_thread(parse_files, wanted)
            answer, files = await self._answer(wanted, given, weight)
        except Unplaceable as error:
            answer, files = answers.make_sandbox_error(str(error), self._pod_name), {}
        return await answer_body.send(request, answer, files)

    async def _answer(self, wanted: RunCodeRequest, files: Files, weight: int) -> answers.Answer:
        language = find_fusion(wanted.language)
        if language is None or language.name not in self._dispatcher.languages:
            known = ", ".join(sorted(self._dispatcher.languages))
            why = f"language {wanted.language} is not one of {known}"
            return answers.make_refusal(UNKNOWN_LANGUAGE, why, self._pod_name), {}
        cannot_compile = language.is_compiled and demand.seconds(wanted.compile_timeout) == 0
        if cannot_compile or demand.seconds(wanted.run_timeout) == 0:
            late = answers.answer_without_time(language.name, wanted.compile_timeout, self._pod_name)
            return answers.add_files(late, files, None)
        patience = demand.patience_seconds(wanted.compile_timeout, wanted.run_timeout)
        reply = await self._dispatcher.run(demand.make_run_request(wanted, files), weight, patience)
        answer = answers.response(language.name, reply.compile, reply.runs[0], self._pod_name)
        return answers.add_files(answer, files, reply)

    async def _run_jupyter(self, request: web.Request) -> web.StreamResponse:
        if self._notebooks is None:
            off = "/run_jupyter is not served: start the sandbox with --max-sessions, or use /run_code"
            return _answer_json({"detail": off}, 501)
        wanted = await _parse_body(RunJupyterRequest, request)
        try:
            answer, files = await self._notebooks.run(wanted, await asyncio.to_thread(parse_files, wanted))
        except Unplaceable as error:
            return _answer_model(notebooks.make_refusal(str(error), self._pod_name))
        return await answer_body.send(request, answer, files)

    async def _list_datasets(self, _: web.Request) -> web.Response:
        return _answer_json(self._open_rows().names)

    async def _list_ids(self, request: web.Request) -> web.Response:
        return _answer_json([prompt.id for prompt in await self._make_prompts(request)])

    async def _get_prompts(self, request: web.Request) -> web.Response:
        return _answer_models(await self._make_prompts(request))

    async def _make_prompts(self, request: web.Request) -> list[Prompt]:
        rows = self._open_rows()
        wanted = await _parse_body(GetPromptsRequest, request)
        family = find_family(wanted)
        return [family.prompt(row, wanted.dataset, wanted.config) for row in await rows.read_rows(wanted)]

    async def _get_prompt_by_id(self, request: web.Request) -> web.Response:
        rows = self._open_rows()
        wanted = await _parse_body(GetPromptByIdRequest, request)
        family = find_family(wanted)
        return _answer_model(family.prompt(await rows.read_row(wanted, wanted.id), wanted.dataset, wanted.config))

    async def _submit(self, request: web.Request) -> web.Response:
        rows = self._open_rows()
        wanted = await _parse_body(SubmitRequest, request)
        family = find_family(wanted)
        plan = family.plan(await rows.read_row(wanted, wanted.id), wanted)
        return _answer_model(await self._submissions.judge(plan, wanted.id))

    async def _get_metrics(self, request: web.Request) -> web.Response:
        self._open_rows()
        find_family(await _parse_body(GetMetricsRequest, request))
        # No dataset of the stock server defines a metric.
        return _answer_json({})

    async def _get_metrics_function(self, request: web.Request) -> web.Response:
        self._open_rows()
        find_family(await _parse_body(DatasetRequest, request))
        # No family of this server defines a function.
        return _answer_json({"function": None})

    def _open_rows(self) -> RowDirectory:
        if self._rows is None:
            raise NotHere(
                "/submit and the dataset routes have no data here: start the sandbox with --fusion-datasets DIR, a "
                "directory of DATASET.jsonl such as mbpp.jsonl; /run_code needs none"
            )
        return self._rows


def _answer_refusals(handler: Handler) -> Handler:
    """Convert refusals to answers in FastAPI's format."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except InvalidBody as error:
            return _answer_json({"detail": error.complaints}, 422)
        except TryAgain as error:
            return _answer_json({"detail": str(error)}, error.status, {"Retry-After": _RETRY_SECONDS})
        except FusionRefusal as error:
            return _answer_json({"detail": str(error)}, error.status)

    return answer


async def _parse_body(model: type[RequestT], request: web.Request) -> RequestT:
    """Parse a request. Raises InvalidBody or BadRequest."""
    body, content_type = await request.read(), request.headers.get("Content-Type")
    if len(body) <= _SMALL_BYTES:
        return read(model, body, content_type)
    return await asyncio.to_thread(read, model, body, content_type)


def _answer_model(model: BaseModel) -> web.Response:
    return web.Response(text=model.model_dump_json(), content_type="application/json")


def _answer_models(models: Sequence[BaseModel]) -> web.Response:
    return web.Response(
        text="[" + ",".join(model.model_dump_json() for model in models) + "]", content_type="application/json"
    )


def _answer_json(value: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response(value, status=status, headers=headers)
