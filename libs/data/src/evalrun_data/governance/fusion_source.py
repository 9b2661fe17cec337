"""Datasets of a SandboxFusion server, through its published client: prompts come, the tests stay on the server.

Its servers name their datasets otherwise than evaluations do: `FUSION_NAMES` is the mapping.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from evalrun_data.governance.plan import SANDBOX_FUSION_SCHEME
from evalrun_runtime.atomic_files import write_text
from evalrun_runtime.distribution import describe_install
from evalrun_runtime.exits import BadInputError

FUSION_NAMES: Final[Mapping[str, str]] = {
    "humaneval": "humaneval_python",
    "mbpp": "mbpp",
    "mbpp_reg": "mbpp",
    "codecontests_train": "code_contests",
    "codecontests_valid": "code_contests",
    "codecontests_test": "code_contests",
}
"""Our dataset: the server's. A server with other names is asked for by them: `sandboxfusion:SERVER_NAME`."""

GetPrompts = Callable[[str, str], Iterable[Any]]
"""Endpoint and the server's dataset: its prompts, as the client's `Prompt` objects."""


def fusion_name(source: str) -> str:
    """Return what the server calls the dataset of a `sandboxfusion:NAME` source."""
    name = source.removeprefix(SANDBOX_FUSION_SCHEME)
    return FUSION_NAMES.get(name, name)


def get_prompts(endpoint: str, dataset: str) -> Iterable[Any]:
    """Ask a server for its prompts. Raises BadInputError if the client is missing or the server does not answer."""
    try:
        import sandbox_fusion
    except ImportError as error:
        raise BadInputError(
            f"sandboxfusion: the package sandbox-fusion is not installed: {describe_install('data')}"
        ) from error
    request = sandbox_fusion.GetPromptsRequest(dataset=dataset, config=sandbox_fusion.TestConfig())
    try:
        return list(sandbox_fusion.get_prompts(request, endpoint=endpoint))
    except Exception as error:  # the client raises bare Exception for any answer but 200
        reason = " ".join(str(error).split())[:300]
        raise BadInputError(f"sandboxfusion:{dataset}: {endpoint} does not serve it: {reason}") from error


def fetch_fusion_rows(source: str, target: Path, endpoint: str, ask: GetPrompts = get_prompts) -> None:
    """Write a server's dataset as records without tests: it keeps them, and judges in judgeMode: Submit.

    Raises:
        BadInputError: no endpoint is named, or the server does not serve the dataset.
    """
    if not endpoint:
        raise BadInputError(f"{source}: name the server: --sandbox-fusion URL, or SANDBOX_FUSION_ENDPOINT")
    dataset, name = fusion_name(source), source.removeprefix(SANDBOX_FUSION_SCHEME)
    lines = []
    for prompt in ask(endpoint, dataset):
        labels = prompt.labels if isinstance(prompt.labels, dict) else {}
        record = {
            "dataset": name,
            "problem_id": str(labels.get("task_id") or labels.get("name") or prompt.id),
            "prompt": prompt.prompt,
            "sandbox_dataset": dataset,
            "sandbox_id": str(prompt.id),
        }
        lines.append(json.dumps(record, ensure_ascii=False) + "\n")
    if not lines:
        raise BadInputError(f"{source}: {endpoint} has no prompt in its dataset '{dataset}'")
    write_text(target, "".join(lines))
