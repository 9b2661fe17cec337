"""An EvalRun from flags alone: what `evalrun run --endpoint URL --model NAME --dataset FILE` evaluates. Pure."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import yaml

from evalrun_api.names import MAX_RUN_NAME
from evalrun_api.v1alpha1 import API_VERSION, KIND
from evalrun_data import demo
from evalrun_data.published import EVALUATED
from evalrun_runtime.exits import BadInputError

DEMO_MODEL: Final = "evalrun/recorded-demo"
DEMO_SERVER: Final = "http://127.0.0.1:8000/v1"
"""Stands in the file for `builtin:demo`, whose address changes with every start."""
SAMPLING_TEMPERATURE: Final = 0.8
"""Of several samples, unless another one is asked for: greedy ones would be equal."""
FILE_NAME: Final = "evalrun.yaml"


@dataclass(frozen=True)
class QuickRun:
    """The user's request."""

    endpoints: Sequence[str]
    model: str | None = None
    datasets: Sequence[str] = ()
    """Files, URLs, or names of `EVALUATED`."""
    samples: int = 1
    temperature: float | None = None
    wandb: str | None = None
    """Project of Weights & Biases that receives the run; None: none does."""

    def checked(self) -> "QuickRun":
        """Return it with the demo's own model and data set filled in. Raises BadInputError if something is missing."""
        if not self.endpoints:
            raise BadInputError("name a FILE, or a server with --endpoint URL --model NAME --dataset FILE")
        is_demo = all(url == demo.SOURCE for url in self.endpoints)
        model = self.model or (DEMO_MODEL if is_demo else None)
        datasets = self.datasets or (["demo"] if is_demo else [])
        if model is None:
            raise BadInputError("--model is missing: write the id that the server shows at /v1/models")
        if not datasets:
            raise BadInputError(f"--dataset is missing: name a file of problems, or one of {', '.join(EVALUATED)}")
        return replace(self, model=model, datasets=datasets)


def manifest_of(asked: QuickRun, sources: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the EvalRun, as a file would hold it.

    Args:
        asked: checked.
        sources: name and source of each data set.
    """
    urls = [DEMO_SERVER if url == demo.SOURCE else url for url in asked.endpoints]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": _name(str(asked.model))},
        "spec": {
            "model": {"path": asked.model},
            "datasets": [{"name": name, "source": source} for name, source in sources],
            "protocol": _protocol(asked.samples, asked.temperature),
            "endpoints": [{"url": url} for url in urls],
            **({} if asked.wandb is None else {"exports": {"wandb": {"project": asked.wandb}}}),
            "output": {"retain": True},  # a cluster asks where the results go; one machine ignores it
        },
    }


def file_text(manifest: Mapping[str, Any], asked: QuickRun) -> str:
    """Return the file that does the same again."""
    again = ["evalrun", "run", FILE_NAME, "--local"]
    again += [part for url in asked.endpoints for part in ("--endpoint", url)]
    return f"# Again: {shlex.join(again)}\n{yaml.safe_dump(dict(manifest), sort_keys=False, allow_unicode=True)}"


def _protocol(samples: int, temperature: float | None) -> dict[str, Any]:
    warmth = temperature if temperature is not None else SAMPLING_TEMPERATURE if samples > 1 else 0.0
    if samples == 1 and warmth == 0:
        return {"name": "EVAL@1"}
    k = [1] if samples == 1 else [1, samples]
    return {"name": "EVAL@k", "temperature": f"{warmth:g}", "samples": samples, "k": k}


def _name(model: str) -> str:
    """Return a name that an EvalRun may have in a cluster too: a letter first, and not too long."""
    words = re.sub(r"[^a-z0-9]+", "-", model.rstrip("/").rpartition("/")[2].lower()).strip("-")
    if not words[:1].isalpha():
        words = f"run-{words}"
    return words[:MAX_RUN_NAME].strip("-")
