"""Datasets of a SandboxFusion server, through its published client: prompts come, the tests stay on the server.

`sandboxfusion:NAME?split=S&language=L&locale=L`: what a known NAME is called there, and its split, are in `PUBLISHED`.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

from evalrun_data.formats.mbpp import REGRESSION_IDS
from evalrun_data.governance.plan import SANDBOX_FUSION_SCHEME
from evalrun_data.published import PUBLISHED, FusionTable
from evalrun_runtime.atomic_files import write_text
from evalrun_runtime.distribution import describe_install
from evalrun_runtime.exits import BadInputError

_OTHER_SPLIT: Final = "evalrun-no-such-split"
_SETTINGS: Final = ("split", "language", "locale")


@dataclass(frozen=True, slots=True)
class FusionRequest:
    """A request for a dataset of a server."""

    dataset: str
    """The server's name of it."""
    split: str = ""
    language: str = ""
    locale: str = ""

    def to_other_split(self) -> "FusionRequest":
        """Return the same request for a split that no dataset has."""
        return FusionRequest(self.dataset, _OTHER_SPLIT, self.language, self.locale)


GetPrompts = Callable[[str, FusionRequest], Iterable[Any]]
"""Sends a request to an endpoint; returns the client's `Prompt` objects."""


def parse_fusion_source(source: str) -> tuple[str, FusionRequest]:
    """Return our name of the dataset and the request for it. Raises BadInputError for an unknown setting."""
    name, _, query = source.removeprefix(SANDBOX_FUSION_SCHEME).partition("?")
    known = PUBLISHED[name].fusion if name in PUBLISHED else None
    table = known or FusionTable(name)
    settings = {"split": table.split, "language": table.language, "locale": "en" if table.language else ""}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in _SETTINGS:
            raise BadInputError(f"{source}: unknown setting '{key}': write {', '.join(_SETTINGS)}")
        settings[key] = value
    return name, FusionRequest(table.name, **settings)


def get_prompts(endpoint: str, request: FusionRequest) -> Iterable[Any]:
    """Ask a server for its prompts. Raises BadInputError if the client is missing or the server does not answer."""
    try:
        import sandbox_fusion
    except ImportError as error:
        raise BadInputError(
            f"sandboxfusion: the package sandbox-fusion is not installed: {describe_install('data')}"
        ) from error
    config = sandbox_fusion.TestConfig(
        language=request.language or None,
        locale=request.locale or None,
        is_fewshot=False,
        extra={"split": request.split} if request.split else {},
    )
    asked = sandbox_fusion.GetPromptsRequest(dataset=request.dataset, config=config)
    try:
        return list(sandbox_fusion.get_prompts(asked, endpoint=endpoint))
    # The client raises bare Exception for any status but 200.
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise BadInputError(f"sandboxfusion:{request.dataset}: {endpoint} does not serve it: {reason}") from error


def fetch_fusion_rows(source: str, target: Path, endpoint: str, ask: GetPrompts = get_prompts) -> None:
    """Write a server's dataset as records without tests: it keeps them, and judges in judgeMode: Submit.

    Raises:
        BadInputError: no endpoint is named, or the server does not serve the dataset or knows no splits.
    """
    if not endpoint:
        raise BadInputError(f"{source}: name the server: --sandbox-fusion URL, or SANDBOX_FUSION_ENDPOINT")
    name, request = parse_fusion_source(source)
    prompts = [_attach_labels(prompt) for prompt in ask(endpoint, request)]
    if request.split:
        prompts = _select_split(source, endpoint, request, prompts, ask)
    lines = [line for prompt, labels in prompts if (line := _line(name, request, prompt, labels))]
    if not lines:
        raise BadInputError(f"{source}: {endpoint} has no prompt in its dataset '{request.dataset}'")
    write_text(target, "".join(lines))


def _attach_labels(prompt: Any) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401 - the client's own type
    return prompt, prompt.labels if isinstance(prompt.labels, dict) else {}


def _select_split(
    source: str,
    endpoint: str,
    request: FusionRequest,
    prompts: Sequence[tuple[Any, dict[str, Any]]],
    ask: GetPrompts,
) -> list[tuple[Any, dict[str, Any]]]:
    """Return the prompts of the split. Raises BadInputError if the server gives the same list for every split."""
    if prompts and all("split" in labels for _, labels in prompts):
        return [(prompt, labels) for prompt, labels in prompts if labels["split"] == request.split]
    try:
        others = {str(prompt.id) for prompt in ask(endpoint, request.to_other_split())}
    # The server knows its splits, and this name is none of them.
    except BadInputError:
        return list(prompts)
    if others & {str(prompt.id) for prompt, _ in prompts}:
        raise BadInputError(
            f"{source}: {endpoint} gives the same prompts for every split of '{request.dataset}': take the published "
            "files (hf://datasets/...), or write sandboxfusion:" + request.dataset + "?split= for all of them"
        )
    return list(prompts)


def _line(name: str, request: FusionRequest, prompt: Any, labels: dict[str, Any]) -> str:  # noqa: ANN401
    """Return the record of a prompt; empty for a problem of MBPP that is not in the regression part."""
    problem_id = str(labels.get("task_id") or labels.get("name") or prompt.id)
    if request.dataset == "mbpp" and (number := problem_id.removeprefix("MBPP/")).isdigit():
        if name == "mbpp_reg" and int(number) not in REGRESSION_IDS:
            return ""
        problem_id = f"MBPP/{number}"
    record = {
        "dataset": name,
        "problem_id": problem_id,
        "prompt": prompt.prompt,
        "sandbox_dataset": request.dataset,
        "sandbox_id": str(prompt.id),
    }
    if request.split:
        record["split"] = request.split
    return json.dumps(record, ensure_ascii=False) + "\n"
