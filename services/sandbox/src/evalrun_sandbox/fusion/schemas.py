"""The schemas of SandboxFusion's API: field names, defaults and enums as in its OpenAPI document.

As in the stock server, unknown fields are ignored and numbers may be strings. Three extensions: language `c`, a null
`memory_limit_MB`, which verl sends without a limit and the stock server answers with 422, and the field `cause` of
a refused request.
"""

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Language = Literal[
    "python", "cpp", "nodejs", "go", "go_test", "java", "php", "csharp", "bash", "typescript", "sql", "rust", "cuda",
    "lua", "R", "perl", "D_ut", "ruby", "scala", "julia", "pytest", "junit", "kotlin_script", "jest", "verilog",
    "python_gpu", "lean", "swift", "racket", "c",
]  # fmt: skip

NO_LIMIT = -1
Row = dict[str, Any]
"""A dataset's row: any JSON."""


class _Model(BaseModel):
    # A sandbox behind our own gateway never gets such a request, so its schema is built late.
    model_config = ConfigDict(defer_build=True)


class RunStatus(StrEnum):
    """Status of a response."""

    SUCCESS = "Success"
    FAILED = "Failed"
    SANDBOX_ERROR = "SandboxError"


class CommandRunStatus(StrEnum):
    """Status of a command: the compiler's or the program's."""

    FINISHED = "Finished"
    ERROR = "Error"
    TIME_LIMIT_EXCEEDED = "TimeLimitExceeded"


class RequestWithFiles(_Model):
    """Fields of every request that runs code."""

    files: dict[str, str | None] = Field(default_factory=dict)
    fetch_files: list[str] = Field(default_factory=list)


class RunCodeRequest(RequestWithFiles):
    """Body of POST /run_code."""

    compile_timeout: float = 10
    """Seconds; the compiler's limit is the sandbox's own, so only "none at all" (0 or less) counts."""
    run_timeout: float = 10
    """Seconds of CPU time here; wall time in the stock server."""
    memory_limit_MB: int | None = NO_LIMIT  # noqa: N815 - the API's own spelling
    """MiB; -1, 0 and null: the sandbox's default."""
    code: str
    stdin: str | None = None
    language: Language


class CommandRunResult(_Model):
    """Result of a command."""

    status: CommandRunStatus
    execution_time: float | None = None
    """Wall seconds."""
    return_code: int | None = None
    """Negative if ended by that signal; null after a time limit."""
    stdout: str | None = None
    stderr: str | None = None


class RunCodeResponse(_Model):
    """Reply of POST /run_code."""

    status: RunStatus
    message: str = ""
    compile_result: CommandRunResult | None = None
    """Null for languages that are not compiled."""
    run_result: CommandRunResult | None = None
    """Null if compiling failed."""
    executor_pod_name: str | None = None
    files: dict[str, str] = Field(default_factory=dict)


class RefusedRunCodeResponse(RunCodeResponse):
    """Reply of POST /run_code to a request that no repetition changes."""

    cause: str
    """The stock server has no such field."""


class RunJupyterRequest(RequestWithFiles):
    """Body of POST /run_jupyter."""

    cells: list[str]
    cell_timeout: float = 0
    """Seconds of CPU time for each cell; 0 or less: what is left of `total_timeout`."""
    total_timeout: float = 45
    """Seconds of CPU time for all cells together; wall time in the stock server."""
    memory_limit_MB: int | None = NO_LIMIT  # noqa: N815 - the API's own spelling
    """MiB, at most the sandbox's limit for sessions; -1, 0 and null: that limit."""
    kernel: Literal["python3"] = "python3"


class CellRunResult(_Model):
    """Result of a cell."""

    stdout: str
    stderr: str
    display: list[dict[str, Any]] = Field(default_factory=list)
    """Output by MIME type; only `text/plain`."""
    error: list[dict[str, Any]] = Field(default_factory=list)
    """Objects with `ename`, `evalue` and `traceback`."""


class RunJupyterResponse(_Model):
    """Answer of POST /run_jupyter."""

    status: RunStatus
    message: str = ""
    driver: CommandRunResult | None = None
    cells: list[CellRunResult] = Field(default_factory=list)
    """Results of the cells that ran; the last cell may have been interrupted."""
    executor_pod_name: str | None = None
    files: dict[str, str] = Field(default_factory=dict)


class Message(_Model):
    """A message of a chat prompt."""

    role: str
    content: str


class Prompt(_Model):
    """A problem's prompt."""

    id: int | str
    prompt: str | list[Message]
    labels: dict[str, Any] = Field(default_factory=dict)


class TestConfig(_Model):
    """Options for a dataset's prompts and judging."""

    # The class is no test, although pytest would collect it by its name.
    __test__ = False

    dataset_type: str | None = None
    language: Language | None = None
    locale: str | None = None
    is_fewshot: bool | None = None
    compile_timeout: float | None = None
    run_timeout: float | None = None
    custom_extract_logic: str | None = None
    provided_data: list[Row] | Row | None = None
    extra: dict[str, Any] = Field(default_factory=dict)


class DatasetRequest(_Model):
    """Fields of every request about a dataset."""

    dataset: str
    config: TestConfig


class GetPromptsRequest(DatasetRequest):
    """Body of POST /get_prompts and /list_ids."""

    offset: int = 0
    limit: int = 1_000_000


class GetPromptByIdRequest(DatasetRequest):
    """Body of POST /get_prompt_by_id."""

    id: int | str


class SubmitRequest(DatasetRequest):
    """Body of POST /submit."""

    id: int | str
    completion: str


class EvalTestCase(_Model):
    """Verdict of a test."""

    passed: bool
    exec_info: RunCodeResponse
    test_info: dict[str, Any] | None = None


class EvalResult(_Model):
    """Reply of POST /submit."""

    id: int | str
    accepted: bool
    extracted_code: str
    full_code: str | None = None
    test_code: str | None = None
    tests: list[EvalTestCase]
    extracted_type: Literal["fenced", "incomplete_fenced", "heuristic", "empty"] | None = None
    extra: dict[str, Any] | None = None


class GetMetricsRequest(DatasetRequest):
    """Body of POST /get_metrics."""

    results: list[EvalResult]
