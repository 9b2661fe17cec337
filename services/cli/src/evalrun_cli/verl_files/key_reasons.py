"""Reasons why keys of verl's configurations have no field in an EvalRun. Contains only data."""

from typing import Final

TRAINING: Final = "of training: an evaluation changes no weights"
_TYPES: Final = "which class of verl's holds it"
_RAY: Final = "the operator makes the RayCluster; its CPUs and memory: spec.rollout.resources"
_TIMELINE: Final = "a run records spans instead: docs/data-formats.md"
REASONS: Final = (
    ("actor", TRAINING), ("actor_rollout_ref.actor", TRAINING), ("actor_rollout_ref.ref", TRAINING),
    ("critic", TRAINING), ("algorithm", TRAINING), ("distillation", TRAINING), ("transfer_queue", TRAINING),
    ("actor_rollout_ref.hybrid_engine", TRAINING), ("actor_rollout_ref.nccl_timeout", TRAINING), ("skip", TRAINING),
    ("actor_rollout_ref.model", "how weights are trained; the engine reads them as they are"),
    ("model.external_lib", "no library of yours is imported into the engine"),
    ("custom_reward_function", "the judge decides; a trainer's function is no judge of an evaluation"),
    ("reward_model", "the judge decides, no model"), ("reward", "the judge decides: docs/rewards.md"),
    ("sandbox.url", "the run starts its own judge; with --local, `--sandbox-fusion URL` judges at this address"),
    ("sandbox", "the judge has its own slots"),
    ("sandbox_fusion", "the run starts its own judge: spec.judge.sandbox"),
    ("global_profiler", "profiles verl's trainer"),
    ("ray_kwargs.timeline_json_file", _TIMELINE), ("ray_init.timeline_json_file", _TIMELINE),
    ("ray_kwargs", _RAY), ("ray_init", _RAY),
    ("defaults", "Hydra's list of files: convert what `--cfg job` prints, where the file has all of it"),
    ("hydra", "Hydra's own"), ("_target_", _TYPES),
    ("trainer.project_name", "trainer.logger names no wandb"),
    ("trainer.experiment_name", "trainer.logger names no wandb"),
    ("trainer.logger", "figures are shown and written anyway; write spec.exports for other systems"),
    ("trainer.device", "replicas run on GPUs"), ("trainer", TRAINING),
    ("data.batch_size", "requests go out as replicas have room: spec.rollout.maxNumSeqs"),
    ("data.output_path", "a run writes a directory: spec.output.url"),
    ("data.prompt_key", "the dataset's rows say which format they have"),
    ("data.train_files", "training data: the evaluation's files are named beside it"),
    ("data.val_files", "data.eval_files stands beside it"),
    ("data", "how a trainer reads rows; a run reads its dataset itself"),
)  # fmt: skip
ROLLOUT_REASONS: Final = (
    ("mode", "replicas serve asynchronously"), ("max_model_len", "promptLength + maxNewTokens"),
    ("log_prob_micro_batch_size", TRAINING), ("log_prob_micro_batch_size_per_gpu", TRAINING),
    ("log_prob_use_dynamic_bsz", TRAINING), ("log_prob_max_token_len_per_gpu", TRAINING),
    ("calculate_log_probs", "of a trainer's rollouts: spec.protocol.calculateLogProbs stores an evaluation's"),
    ("free_cache_engine", "replicas of a run keep their memory"),
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

MATTER: Final = (
    ("rollout.engine_kwargs", "an EvalRun passes no flags of the engine's own"),
    ("rollout.quantization", "weights are read as they are: name a model that is quantized already"),
    ("rollout.multi_turn.enable", "an EvalRun has no tools: write protocol EVAL@turns for turns with feedback"),
    ("rollout.multi_turn.tool_config_path", "an EvalRun has no tools"),
    ("data.apply_chat_template_kwargs", "the server renders the chat: give it these"),
    ("data.custom_cls.path", "rows are read as they are, not by a class of yours"),
    ("custom_reward_function.path", "it would score instead of the tests: name it as spec.datasets[].grader"),
)
"""Keys that change completions or verdicts if they are set, and have no field."""

DUMMY_FORMATS: Final = ("dummy", "dummy_dtensor", "dummy_hf", "dummy_megatron")
"""Values of verl's load_format for weights that a trainer pushes into the engine later."""
