"""verl's generation.yaml (0.7.0), or a trainer's configuration, as an EvalRun. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from evalrun_api.names import MAX_RUN_NAME
from evalrun_api.v1alpha1 import API_VERSION, KIND
from evalrun_cli.verl_files.document import Document, Entry
from evalrun_runtime.exits import BadInputError

TRAINING = "of training: an evaluation changes no weights"
_TYPES = "which class of verl's holds it"
_REASONS: Final = (
    ("actor", TRAINING), ("actor_rollout_ref.actor", TRAINING), ("actor_rollout_ref.ref", TRAINING),
    ("critic", TRAINING), ("algorithm", TRAINING), ("distillation", TRAINING), ("transfer_queue", TRAINING),
    ("actor_rollout_ref.hybrid_engine", TRAINING), ("actor_rollout_ref.nccl_timeout", TRAINING), ("skip", TRAINING),
    ("actor_rollout_ref.model", "how weights are trained; the engine reads them as they are"),
    ("model.external_lib", "no library of yours is imported into the engine"),
    ("custom_reward_function", "the judge decides; a trainer's function is no judge of an evaluation"),
    ("reward_model", "the judge decides, no model"), ("reward", "the judge decides: docs/rewards.md"),
    ("sandbox_fusion", "the run has a judge of its own: spec.judge.sandbox"),
    ("global_profiler", "profiles verl's trainer"), ("ray_kwargs", "the operator makes the RayCluster"),
    ("defaults", "Hydra's list of files: convert what `--cfg job` prints, where the file has all of it"),
    ("hydra", "Hydra's own"), ("_target_", _TYPES),
    ("trainer.project_name", "write spec.exports.wandb.project if figures are to go there"),
    ("trainer.experiment_name", "the EvalRun's name says it"),
    ("trainer.device", "replicas run on GPUs"), ("trainer", TRAINING),
    ("data.batch_size", "requests go out as replicas have room: spec.rollout.maxNumSeqs"),
    ("data.output_path", "a run writes a folder: spec.output.url"),
    ("data.prompt_key", "the data set's rows say which format they have"),
    ("data.train_files", "training data is never evaluated"),
    ("data", "how a trainer reads rows; a run reads its data set itself"),
)  # fmt: skip
_ROLLOUT_REASONS: Final = (
    ("mode", "replicas serve asynchronously"), ("max_model_len", "promptLength + maxNewTokens"),
    ("log_prob_micro_batch_size", TRAINING), ("log_prob_micro_batch_size_per_gpu", TRAINING),
    ("log_prob_use_dynamic_bsz", TRAINING), ("log_prob_max_token_len_per_gpu", TRAINING),
    ("calculate_log_probs", TRAINING), ("free_cache_engine", "replicas of a run keep their memory"),
    ("disable_log_stats", "the engine's metrics are always on"), ("do_sample", "a temperature of 0 says it"),
    ("seed", "protocol.seed seeds each sample"), ("val_kwargs", "see protocol"),
    ("n", "the trainer's group; protocol.samples comes from val_kwargs.n"),
    ("temperature", "the trainer's; protocol.temperature comes from val_kwargs"),
    ("top_p", "the trainer's; protocol.topP comes from val_kwargs"),
    ("top_k", "the trainer's; protocol.topK comes from val_kwargs"),
    ("nnodes", "replicas follow from GPUs"), ("n_gpus_per_node", "gpusPerNode"), ("_target_", _TYPES),
    ("cudagraph_capture_sizes", "the engine chooses"), ("expert_parallel_size", "the engine's default"),
    ("logprobs_mode", TRAINING), ("scheduling_policy", "of serving: the same answers"), ("layered_summon", TRAINING),
    ("over_sample_rate", TRAINING), ("multi_stage_wake_up", TRAINING), ("router_config_path", "the generator balances"),
    ("agent", TRAINING), ("checkpoint_engine", TRAINING), ("trace", TRAINING), ("skip_tokenizer_init", "of serving"),
    ("enable_rollout_routing_replay", TRAINING), ("moe_load_balance_metrics_interval", TRAINING),
    ("profiler", "profiles verl's trainer"), ("prometheus", "the engine's metrics are always on"), ("mtp", TRAINING),
    ("qat", TRAINING), ("disaggregation", "replicas do all of the work"), ("multi_turn", "one answer a prompt"),
    ("engine_kwargs", "an EvalRun passes no flags of the engine's own"),
    ("quantization", "weights are read as they are"), ("quantization_config_file", "weights are read as they are"),
)  # fmt: skip

_MATTER: Final = (
    ("rollout.engine_kwargs", "an EvalRun passes no flags of the engine's own: see whether answers depend on it"),
    ("rollout.quantization", "weights are read as they are: see whether a quantized model is meant"),
    ("rollout.multi_turn.enable", "an EvalRun asks once: answers of several turns differ"),
    ("rollout.multi_turn.tool_config_path", "an EvalRun has no tools"),
    ("data.apply_chat_template_kwargs", "the server renders the chat: give it these"),
    ("data.custom_cls.path", "rows are read as they are, not by a class of yours"),
    ("data.system_prompt", "write spec.datasets[].systemPrompt"),
    ("model.lora_adapter_path", "name the adapter as spec.model.adapter"),
)
"""Keys that change answers where they are set, and have no field."""


@dataclass(frozen=True)
class Converted:
    """An EvalRun, and what became of each key of the file."""

    manifest: Mapping[str, Any]
    entries: list[Entry]


def convert(values: Mapping[str, Any], where: str) -> Converted:
    """Return the EvalRun of a configuration.

    Args:
        values: the file's.
        where: its name, for messages.

    Raises:
        BadInputError: it is no such file, or a value that is needed cannot be read.
    """
    document = Document(values, where)
    if not document.has("model.path", "actor_rollout_ref.model.path"):
        raise BadInputError(f"{where}: neither model.path nor actor_rollout_ref.model.path: no configuration of verl's")
    trainer = document.has("actor_rollout_ref")
    top = "actor_rollout_ref." if trainer else ""
    rollout = f"{top}rollout."
    path = str(document.mapped(f"{top}model.path", "spec.model.path"))
    spec: dict[str, Any] = {"model": {"path": path}}
    if document.mapped(f"{top}model.trust_remote_code", "spec.model.trustRemoteCode"):
        spec["model"]["trustRemoteCode"] = True
    spec["datasets"] = _datasets(document, trainer=trainer)
    spec["protocol"] = _protocol(document, rollout, trainer=trainer)
    spec["rollout"] = _rollout(document, rollout, trainer=trainer)
    spec["output"] = {"retain": True}
    reasons = [(f"{rollout}{name}".rstrip("."), why) for name, why in _ROLLOUT_REASONS]
    for key in document.open_keys:
        for prefix, why in _MATTER:
            if f"{key}.".startswith((f"{prefix}.", f"actor_rollout_ref.{prefix}.")) and document.is_set(key):
                document.note(key, "unknown", why)
    for key in ("custom_reward_function.path", "reward.custom_reward_function.path"):
        if document.is_set(key) and "evalrun_trainers" not in str(document.value(key)):
            document.note(key, "unknown", "if it scores what is no program, write spec.datasets[].grader")
    document.ignore([*reasons, *_REASONS])
    name = _name(path)
    manifest = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}
    return Converted(manifest, document.entries)


def _datasets(document: Document, *, trainer: bool) -> list[dict[str, Any]]:
    key = "data.val_files" if trainer else "data.path"
    files = document.mapped(key, "spec.datasets[].source")
    sources = files if isinstance(files, list) else [files] if files is not None else []
    if not sources:
        raise BadInputError(f"{document.where}: {key}: names no file of problems: write one")
    limit = document.mapped("data.val_max_samples", "spec.datasets[].maxProblems") if trainer else None
    names: dict[str, str] = {}
    for source in map(str, sources):
        name = _name(re.sub(r"\.(parquet|jsonl?)(\.gz)?$", "", source), 60)
        names[name if name not in names else f"{name}-{len(names)}"] = source
    cut = {"maxProblems": int(limit)} if limit is not None and int(limit) > 0 else {}
    return [{"name": name, "source": source, **cut} for name, source in names.items()]


def _protocol(document: Document, rollout: str, *, trainer: bool) -> dict[str, Any]:
    sampling = f"{rollout}val_kwargs." if trainer else rollout
    samples = int(document.mapped(f"{sampling}n" if trainer else "data.n_samples", "spec.protocol.samples") or 1)
    if not trainer:
        document.note(f"{rollout}n", "ignored", "data.n_samples says how many answers a problem gets")
    greedy = document.value(f"{sampling}do_sample") is False
    document.note(f"{sampling}do_sample", "mapped", "spec.protocol.temperature: 0 unless it samples")
    given = document.mapped(f"{sampling}temperature", "spec.protocol.temperature")
    temperature = 0.0 if greedy else float(1.0 if given is None else given)
    top_p = document.mapped(f"{sampling}top_p", "spec.protocol.topP")
    top_k = document.mapped(f"{sampling}top_k", "spec.protocol.topK")
    length = document.mapped(f"{rollout}response_length", "spec.protocol.maxNewTokens")
    document.note("data.max_response_length", "mapped", "spec.protocol.maxNewTokens")
    protocol: dict[str, Any] = {"name": "EVAL@1"}
    if temperature == 0 and samples > 1:
        key = f"{sampling}n" if trainer else "data.n_samples"
        document.note(key, "refused", "at temperature 0 every sample is the same: write 1, or a temperature above 0")
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
            document.note(f"{sampling}{name}", "ignored", "the likeliest token is taken: it changes nothing")
    if document.mapped(f"{rollout}full_determinism", "spec.protocol.deterministic"):
        protocol["deterministic"] = True
    if length is not None:
        protocol["maxNewTokens"] = int(length)
    if document.mapped(f"{rollout}ignore_eos", "spec.protocol.ignoreEos"):
        protocol["ignoreEos"] = True
    return protocol


_ROLLOUT_FIELDS: Final = (
    ("tensor_model_parallel_size", "tensorParallel", int), ("data_parallel_size", "dataParallel", int),
    ("pipeline_model_parallel_size", "pipelineParallel", int), ("dtype", "dtype", str),
    ("gpu_memory_utilization", "gpuMemoryUtilization", lambda value: f"{float(value):g}"),
    ("enforce_eager", "enforceEager", bool), ("enable_prefix_caching", "enablePrefixCaching", bool),
    ("enable_chunked_prefill", "enableChunkedPrefill", bool), ("max_num_seqs", "maxNumSeqs", int),
    ("max_num_batched_tokens", "maxNumBatchedTokens", int), ("prompt_length", "promptLength", int),
)  # fmt: skip


def _rollout(document: Document, rollout: str, *, trainer: bool) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    engine = document.mapped(f"{rollout}name", "spec.rollout.engine")
    if engine in ("vllm", "sglang"):
        spec["engine"] = engine
    elif engine is not None:
        document.note(f"{rollout}name", "refused", f"no engine {engine!r} here: write vllm or sglang")
    for name, field, kind in _ROLLOUT_FIELDS:
        value = document.mapped(f"{rollout}{name}", f"spec.rollout.{field}")
        if value is not None:
            spec[field] = kind(value)
    document.note("data.max_prompt_length", "mapped", "spec.rollout.promptLength")
    spec["loadFormat"] = _load_format(document, f"{rollout}load_format", trainer=trainer)
    gpus = int(document.mapped("trainer.n_gpus_per_node", "spec.rollout.gpusPerNode") or 8)
    nodes = int(document.mapped("trainer.nnodes", "spec.rollout.replicas") or 1)
    of_replica = spec.get("tensorParallel", 2) * spec.get("dataParallel", 1) * spec.get("pipelineParallel", 1)
    spec["gpusPerNode"] = gpus
    spec["replicas"] = max(1, nodes * gpus // of_replica)
    return spec


def _load_format(document: Document, key: str, *, trainer: bool) -> str:
    """Return how weights are read. A trainer pushes its own into the engine, so `dummy` there is no wish for noise."""
    given = document.mapped(key, "spec.rollout.loadFormat")
    if given == "dummy" and trainer:
        document.note(key, "ignored", "the trainer pushes weights into the engine; a run reads them: loadFormat: auto")
    elif given == "dummy":
        document.note(key, "refused", "no weights are read and the model answers noise: write auto")
    elif given is not None:
        return str(given)
    return "auto"


def _name(text: str, max_length: int = MAX_RUN_NAME) -> str:
    """Return a name that the API takes: small letters and digits, a letter first."""
    words = re.sub(r"[^a-z0-9]+", "-", text.rstrip("/").rpartition("/")[2].lower()).strip("-")
    if not words[:1].isalpha():
        words = f"run-{words}"
    return words[:max_length].strip("-")
