"""verl's generation.yaml (0.7.0), or a trainer's configuration, as an EvalRun. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from evalrun_api.names import MAX_RUN_NAME
from evalrun_api.v1alpha1 import API_VERSION, KIND
from evalrun_cli.verl_files.document import Document, Entry
from evalrun_cli.verl_files.key_reasons import DUMMY_FORMATS, MATTER, REASONS, ROLLOUT_REASONS
from evalrun_registry.limits import DEFAULT_LIMITS
from evalrun_runtime.exits import BadInputError


@dataclass(frozen=True)
class Converted:
    """An EvalRun with the conversion of each key."""

    manifest: Mapping[str, Any]
    entries: list[Entry]


def convert(values: Mapping[str, Any], where: str) -> Converted:
    """Return the EvalRun of a configuration.

    Args:
        values: values of the file.
        where: name of the file, for messages.

    Raises:
        BadInputError: the file is no configuration of verl's, or a required value cannot be read.
    """
    document = Document(values, where)
    if not document.has("model.path", "actor_rollout_ref.model.path"):
        raise BadInputError(f"{where}: neither model.path nor actor_rollout_ref.model.path: no configuration of verl's")
    top = "actor_rollout_ref." if document.has("actor_rollout_ref") else ""
    rollout = f"{top}rollout."
    validates = bool(top) and document.has(f"{rollout}val_kwargs")
    path = str(document.map_value(f"{top}model.path", "spec.model.path"))
    spec: dict[str, Any] = {"model": {"path": path}}
    if document.map_value(f"{top}model.trust_remote_code", "spec.model.trustRemoteCode"):
        spec["model"]["trustRemoteCode"] = True
    if (adapter := document.map_value(f"{top}model.lora_adapter_path", "spec.model.adapter")) is not None:
        spec["model"]["adapter"] = str(adapter)
    spec["datasets"] = _convert_datasets(document, is_trainers=bool(top))
    spec["protocol"] = _convert_protocol(
        document, rollout, _choose_sampling(rollout, validates=validates), is_trainers=bool(top)
    )
    spec["rollout"] = _convert_rollout(document, rollout, validates=validates)
    spec["output"] = {"retain": True}
    if (wandb := _convert_wandb(document)) is not None:
        spec["exports"] = {"wandb": wandb}
    _refuse_unmapped(document)
    reasons = [(f"{rollout}{name}".rstrip("."), why) for name, why in ROLLOUT_REASONS]
    document.ignore([*reasons, *REASONS])
    name = _name_run(path)
    manifest = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}
    return Converted(manifest, document.entries)


def _refuse_unmapped(document: Document) -> None:
    """Refuse the keys that change completions or verdicts and have no field."""
    for key in document.open_keys:
        for prefix, why in MATTER:
            below = (f"{prefix}.", f"actor_rollout_ref.{prefix}.", f"reward.{prefix}.")
            if not f"{key}.".startswith(below) or not document.is_set(key):
                continue
            # Our own reward function asks the same judge that the run has.
            if "evalrun_trainers" not in str(document.value(key)):
                document.note(key, "refused", f"{why}, or leave it out with ~{key}")


def _convert_datasets(document: Document, *, is_trainers: bool) -> list[dict[str, Any]]:
    """Return the datasets: a trainer's files for evaluation, else for validation, else for training. Without a trainer
    they are the files of `data.path`."""
    keys = ("data.eval_files", "data.val_files", "data.train_files") if is_trainers else ("data.path",)
    key = next((key for key in keys if document.has(key)), keys[0])
    named = document.list_children(key)
    files = {name: document.map_value(f"{key}.{name}", "spec.datasets[].source") for name in named}
    listed = None if named else document.map_value(key, "spec.datasets[].source")
    for source in listed if isinstance(listed, list) else [] if listed is None else [listed]:
        name = _name_dataset(str(source))
        files[name if name not in files else f"{name}-{len(files)}"] = source
    if not files:
        raise BadInputError(f"{document.where}: {key}: names no file of problems: write one")
    limit = document.map_value("data.val_max_samples", "spec.datasets[].maxProblems") if is_trainers else None
    cut: dict[str, Any] = {"maxProblems": int(limit)} if limit is not None and int(limit) > 0 else {}
    if (system := document.map_value("data.system_prompt", "spec.datasets[].systemPrompt")) is not None:
        cut["systemPrompt"] = str(system)
    if limits := _convert_limits(document):
        cut["limits"] = limits
    return [{"name": name, "source": str(source), **cut} for name, source in files.items()]


def _convert_limits(document: Document) -> dict[str, Any]:
    """Return the limits of a test that a sandbox's section sets."""
    limits: dict[str, Any] = {}
    seconds = document.map_value(
        "sandbox.timeout", "spec.datasets[].limits: CPU seconds, so a busy machine fails nothing"
    )
    if seconds is not None:
        whole = float(seconds).is_integer()
        limits["timeSeconds" if whole else "timeMilliseconds"] = int(float(seconds) * (1 if whole else 1000))
    for section in ("sandbox", "sandbox_fusion", "reward.sandbox_fusion", "reward_model.sandbox_fusion"):
        memory = document.map_value(f"{section}.memory_limit_mb", "spec.datasets[].limits.memoryMiB")
        if memory is not None and int(memory) != DEFAULT_LIMITS.memory_mib:
            limits["memoryMiB"] = int(memory)
    return limits


def _convert_wandb(document: Document) -> dict[str, Any] | None:
    """Return the export to WandB that a trainer's logger asks for; None without such a logger."""
    loggers = document.value("trainer.logger")
    if "wandb" not in (loggers if isinstance(loggers, list) else [loggers]):
        return None
    if document.value("trainer.project_name") is None:
        document.note("trainer.logger", "ignored", "wandb needs a project: write trainer.project_name")
        return None
    document.note("trainer.logger", "mapped", "spec.exports.wandb")
    wandb = {"project": str(document.map_value("trainer.project_name", "spec.exports.wandb.project"))}
    if (name := document.map_value("trainer.experiment_name", "spec.exports.wandb.name")) is not None:
        wandb["name"] = str(name)
    return wandb


@dataclass(frozen=True)
class _Sampling:
    """Location of the sampling settings in a configuration."""

    prefix: str
    """Prefix of temperature, top_p, top_k, do_sample and n."""
    temperature: float
    """verl's default."""


def _choose_sampling(rollout: str, *, validates: bool) -> _Sampling:
    """Return the sampling settings. Validation's own section takes precedence over the rollout's."""
    return _Sampling(f"{rollout}val_kwargs.", 0.0) if validates else _Sampling(rollout, 1.0)


def _convert_protocol(document: Document, rollout: str, sampling: _Sampling, *, is_trainers: bool) -> dict[str, Any]:
    prefix = sampling.prefix
    count = f"{prefix}n" if is_trainers else "data.n_samples"
    samples = int(document.map_value(count, "spec.protocol.samples") or 1)
    if not is_trainers:
        document.note(f"{rollout}n", "ignored", "data.n_samples says how many answers a problem gets")
    is_greedy = document.value(f"{prefix}do_sample") is False
    document.note(f"{prefix}do_sample", "mapped", "spec.protocol.temperature: 0 unless it samples")
    given = document.map_value(f"{prefix}temperature", "spec.protocol.temperature")
    temperature = 0.0 if is_greedy else float(sampling.temperature if given is None else given)
    top_p = document.map_value(f"{prefix}top_p", "spec.protocol.topP")
    top_k = document.map_value(f"{prefix}top_k", "spec.protocol.topK")
    protocol: dict[str, Any] = {"name": "EVAL@1"}
    if temperature == 0 and samples > 1:
        document.note(count, "refused", "at temperature 0 every sample is the same: write 1, or a temperature above 0")
    elif temperature > 0:
        protocol = {
            "name": "EVAL@k",
            "temperature": f"{temperature:g}",
            "samples": samples,
            "k": sorted({1, samples}),
        }
        if top_p is not None and float(top_p) < 1:
            protocol["topP"] = f"{float(top_p):g}"
        if top_k is not None and int(top_k) > 0:
            protocol["topK"] = int(top_k)
    if temperature == 0:
        for name in ("top_p", "top_k"):
            document.note(f"{prefix}{name}", "ignored", "the likeliest token is taken: it changes nothing")
    return protocol | _convert_decoding(document, rollout, validates=prefix != rollout)


def _convert_decoding(document: Document, rollout: str, *, validates: bool) -> dict[str, Any]:
    """Return the fields of the protocol that hold for every way of sampling."""
    protocol: dict[str, Any] = {}
    length = document.map_value(f"{rollout}response_length", "spec.protocol.maxNewTokens")
    if length is None:
        length = document.value("data.max_response_length")
    document.note("data.max_response_length", "mapped", "spec.protocol.maxNewTokens")
    penalty = document.map_value(f"{rollout}repetition_penalty", "spec.protocol.repetitionPenalty")
    if penalty is not None and float(penalty) != 1:
        protocol["repetitionPenalty"] = f"{float(penalty):g}"
    if document.map_value(f"{rollout}full_determinism", "spec.protocol.deterministic"):
        protocol["deterministic"] = True
    if length is not None:
        protocol["maxNewTokens"] = int(length)
    if document.map_value(f"{rollout}ignore_eos", "spec.protocol.ignoreEos"):
        protocol["ignoreEos"] = True
    if not validates and document.map_value(f"{rollout}calculate_log_probs", "spec.protocol.calculateLogProbs"):
        protocol["calculateLogProbs"] = True
    return protocol


_ROLLOUT_FIELDS: Final = (
    ("tensor_model_parallel_size", "tensorParallel", int), ("data_parallel_size", "dataParallel", int),
    ("pipeline_model_parallel_size", "pipelineParallel", int), ("dtype", "dtype", str),
    ("gpu_memory_utilization", "gpuMemoryUtilization", lambda value: f"{float(value):g}"),
    ("enforce_eager", "enforceEager", bool), ("enable_prefix_caching", "enablePrefixCaching", bool),
    ("enable_chunked_prefill", "enableChunkedPrefill", bool), ("max_num_seqs", "maxNumSeqs", int),
    ("max_num_batched_tokens", "maxNumBatchedTokens", int), ("prompt_length", "promptLength", int),
)  # fmt: skip


def _convert_rollout(document: Document, rollout: str, *, validates: bool) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    engine = document.map_value(f"{rollout}name", "spec.rollout.engine")
    if engine in ("vllm", "sglang"):
        spec["engine"] = engine
    elif engine is not None:
        document.note(f"{rollout}name", "refused", f"no engine {engine!r} here: write vllm or sglang")
    for name, field, kind in _ROLLOUT_FIELDS:
        value = document.map_value(f"{rollout}{name}", f"spec.rollout.{field}")
        if value is not None:
            spec[field] = kind(value)
    document.note("data.max_prompt_length", "mapped", "spec.rollout.promptLength")
    spec["loadFormat"] = _convert_load_format(document, f"{rollout}load_format", validates=validates)
    gpus = int(document.map_value("trainer.n_gpus_per_node", "spec.rollout.gpusPerNode") or 8)
    nodes = int(document.map_value("trainer.nnodes", "spec.rollout.replicas") or 1)
    of_replica = spec.get("tensorParallel", 2) * spec.get("dataParallel", 1) * spec.get("pipelineParallel", 1)
    spec["gpusPerNode"] = gpus
    spec["replicas"] = max(1, nodes * gpus // of_replica)
    return spec


def _convert_load_format(document: Document, key: str, *, validates: bool) -> str:
    """Return the load format of weights. In training `dummy` only means that the trainer pushes weights into the
    engine."""
    given = document.map_value(key, "spec.rollout.loadFormat")
    if given in DUMMY_FORMATS and validates:
        document.note(key, "ignored", "the trainer pushes weights into the engine; a run reads them: loadFormat: auto")
    elif given in DUMMY_FORMATS:
        document.note(
            key,
            "refused",
            f"{given} reads no weights, for a trainer pushes them later; here the model would answer noise: write auto",
        )
    elif given is not None:
        return str(given)
    return "auto"


def _name_dataset(source: str) -> str:
    """Return a dataset's name: the file's, as quotas and headlines know it (codecontests_valid)."""
    file = re.sub(r"\.(parquet|jsonl?)(\.gz)?$", "", source.rstrip("/").rpartition("/")[2].lower())
    return re.sub(r"[^a-z0-9_.]+", "-", file).strip("-_.")[:60] or "problems"


def _name_run(text: str) -> str:
    """Return a run's name: small letters, digits and hyphens, a letter first."""
    words = re.sub(r"[^a-z0-9]+", "-", text.rstrip("/").rpartition("/")[2].lower()).strip("-")
    if not words[:1].isalpha():
        words = f"run-{words}"
    return words[:MAX_RUN_NAME].strip("-")
