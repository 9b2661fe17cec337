"""Builds an EvalRun from the flags of `evalrun run --endpoint URL --model NAME --dataset FILE`. Pure."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import yaml

from evalrun_api.names import MAX_RUN_NAME
from evalrun_api.v1alpha1 import API_VERSION, KIND
from evalrun_cli.gpu_host.options import NO_GPU_OPTIONS, GpuOptions
from evalrun_cli.local.workspace import QUICK_FILE
from evalrun_data import demo
from evalrun_data.published import EVALUATED
from evalrun_runtime.exits import BadInputError

DEMO_MODEL: Final = "evalrun/recorded-demo"
DEMO_SERVER: Final = "http://127.0.0.1:8000/v1"
"""Stands in the file for `builtin:demo`, whose address changes with every start."""
SAMPLING_TEMPERATURE: Final = 0.8
"""Temperature of several samples, unless the user sets it: greedy samples would be equal."""
TURN_LIMIT: Final = 4
"""Completions per sample of EVAL@turns."""


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
    """Project of Weights & Biases that receives the run; None: it is not sent."""
    name: str | None = None
    protocol: Literal["EVAL@1", "EVAL@k", "EVAL@turns"] | None = None
    """None: derived from the number of samples."""
    k: Sequence[int] = ()
    """Values of k in pass@k; empty: 1 and the number of samples."""
    max_problems: int | None = None
    step: int | None = None
    """Training step of the checkpoint."""
    labels: Mapping[str, str] = field(default_factory=dict)
    seeds: int = 1
    tensor_parallel: int = 1
    """GPUs per replica, if replicas are started here."""
    log_probs: bool = False
    """Whether the log-probability of every token is stored."""

    def fill_defaults(self, gpu_options: GpuOptions = NO_GPU_OPTIONS) -> "QuickRun":
        """Return the request, for the demo with its model and dataset filled in. Raises BadInputError if a flag is
        missing, or flags exclude each other."""
        if not self.endpoints and gpu_options.gpus is None:
            raise BadInputError(
                "name a FILE, or a server with --endpoint URL --model NAME --dataset FILE, or this machine's GPUs with "
                "--gpus all --model PATH --dataset FILE"
            )
        is_demo = bool(self.endpoints) and all(url == demo.SOURCE for url in self.endpoints)
        if is_demo and self.protocol == "EVAL@turns":
            raise BadInputError(
                "--protocol EVAL@turns: builtin:demo has no second answers: name a server with --endpoint URL --model "
                "NAME"
            )
        model = self.model or (DEMO_MODEL if is_demo else None)
        datasets = self.datasets or (["demo"] if is_demo else [])
        if model is None:
            what = "the id that the server shows at /v1/models" if self.endpoints else "a folder or an id of the hub"
            raise BadInputError(f"--model is missing: write {what}")
        if not datasets:
            raise BadInputError(f"--dataset is missing: name a file of problems, or one of {', '.join(EVALUATED)}")
        self._check_sampling()
        return replace(self, model=model, datasets=datasets)

    def _check_sampling(self) -> None:
        """Raise BadInputError for flags that exclude each other."""
        if self.samples > 1 and self.temperature == 0:
            raise BadInputError(
                f"--temperature 0: {self.samples} samples would be equal: leave it away (0.8), or write --samples 1"
            )
        if self.seeds > 1 and (self.temperature == 0 or self.protocol == "EVAL@1"):
            raise BadInputError(
                f"--seeds {self.seeds}: a greedy answer is the same with every seed: leave --temperature 0 and "
                "--protocol EVAL@1 away, or write --seeds 1"
            )
        if self.k and max(self.k) > self.samples:
            raise BadInputError(f"--k {max(self.k)}: needs as many samples: add --samples {max(self.k)}")
        if self.protocol == "EVAL@1" and (self.samples > 1 or self.k):
            raise BadInputError("--protocol EVAL@1: has one sample: leave --samples and --k away, or write EVAL@k")
        if self.protocol == "EVAL@turns" and self.k:
            raise BadInputError("--k: EVAL@turns reports figures by turn: leave it away")


def make_rollout(gpus: int, tensor_parallel: int, *, on_cpu: bool) -> dict[str, Any]:
    """Return the `spec.rollout` for as many replicas as the GPUs hold. Raises BadInputError if they hold none.

    Args:
        gpus: number of GPUs.
        tensor_parallel: GPUs per replica.
        on_cpu: whether the CPU build simulates the GPUs: it does not have bfloat16 on every machine, and its cache is
            small.
    """
    if tensor_parallel > gpus:
        raise BadInputError(f"--tensor-parallel {tensor_parallel}: there are {gpus} GPUs: write at most {gpus}")
    replicas = gpus // tensor_parallel
    return {
        "tensorParallel": tensor_parallel,
        "gpusPerNode": replicas * tensor_parallel,
        "replicas": replicas,
        **({"dtype": "float32", "enforceEager": True, "maxNumSeqs": 16} if on_cpu else {}),
    }


def make_manifest(
    asked: QuickRun, sources: Sequence[tuple[str, str]], rollout: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the EvalRun in the form of a manifest.

    Args:
        asked: the request, checked.
        sources: name and source of each dataset.
        rollout: replicas to start; None: endpoints are used.
    """
    urls = [DEMO_SERVER if url == demo.SOURCE else url for url in asked.endpoints]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": asked.name or _name(str(asked.model)),
            **({"labels": dict(asked.labels)} if asked.labels else {}),
        },
        "spec": {
            "model": {"path": asked.model},
            "datasets": [
                {
                    "name": name,
                    "source": source,
                    **({} if asked.max_problems is None else {"maxProblems": asked.max_problems}),
                }
                for name, source in sources
            ],
            "protocol": {**_protocol(asked), **({"calculateLogProbs": True} if asked.log_probs else {})},
            **({} if asked.step is None else {"lineage": {"step": asked.step}}),
            **({"endpoints": [{"url": url} for url in urls]} if rollout is None else {"rollout": dict(rollout)}),
            **({} if asked.wandb is None else {"exports": {"wandb": {"project": asked.wandb}}}),
            # A cluster asks where the results go; one machine ignores the field.
            "output": {"retain": True},
        },
    }


def file_text(manifest: Mapping[str, Any], asked: QuickRun, gpu_options: GpuOptions = NO_GPU_OPTIONS) -> str:
    """Return the file that does the same again."""
    again = ["evalrun", "run", QUICK_FILE, "--local"]
    again += [part for url in asked.endpoints for part in ("--endpoint", url)]
    again += [part for flag, value in gpu_options.flags.items() if value is not None for part in (flag, str(value))]
    return f"# Again: {shlex.join(again)}\n{yaml.safe_dump(dict(manifest), sort_keys=False, allow_unicode=True)}"


def _protocol(asked: QuickRun) -> dict[str, Any]:
    samples, temperature = asked.samples, asked.temperature
    by_chance = samples > 1 or asked.seeds > 1
    warmth = temperature if temperature is not None else SAMPLING_TEMPERATURE if by_chance else 0.0
    seeds = {"seeds": asked.seeds} if asked.seeds > 1 else {}
    if asked.protocol == "EVAL@turns":
        return {
            "name": "EVAL@turns", "temperature": f"{warmth:g}", "samples": samples, **seeds,
            "turns": {"limit": TURN_LIMIT},
        }  # fmt: skip
    if asked.protocol != "EVAL@k" and samples == 1 and warmth == 0:
        return {"name": "EVAL@1"}
    k = sorted(set(asked.k)) or ([1] if samples == 1 else [1, samples])
    return {"name": "EVAL@k", "temperature": f"{warmth:g}", "samples": samples, **seeds, "k": k}


def _name(model: str) -> str:
    """Return a name that an EvalRun may have in a cluster too: a letter first, and not too long."""
    words = re.sub(r"[^a-z0-9]+", "-", model.rstrip("/").rpartition("/")[2].lower()).strip("-")
    if not words[:1].isalpha():
        words = f"run-{words}"
    return words[:MAX_RUN_NAME].strip("-")
