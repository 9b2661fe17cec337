"""Additional methods of a kept replica's vLLM workers: load another checkpoint's weights, and prove it."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
from vllm.distributed import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size

from evalrun_generator.weights.checkpoint_files import UnfitCheckpointError, read_index
from evalrun_generator.weights.file_to_device import Lanes
from evalrun_generator.weights.moves import Move, make_move
from evalrun_generator.weights.parameter_layout import PLAIN_MODELS, Parameter, Rank, layout


class WeightsExtension(vLLMColocateWorkerExtension):  # type: ignore[misc] # verl is untyped
    """Methods of a worker. The engine must run no request during a call.

    After a replacement its prefix cache must be reset.
    """

    model_runner: Any
    """vLLM's model runner; vLLM gives the class its worker's attributes."""

    def evalrun_prove_weights(self, directory: str) -> dict[str, float]:
        """Compare this worker's parameters with a checkpoint's files, byte by byte. Return the comparison's seconds.

        Raises:
            UnfitCheckpointError: this engine cannot take other weights, or a parameter differs.
        """
        return self._compare(self._moves(Path(directory)), directory)

    def evalrun_replace_weights(self, directory: str) -> dict[str, float]:
        """Copy a checkpoint's weights into the parameters, then prove them. Return the seconds of each step.

        After any exception the engine must not serve again: UnfitCheckpointError, OSError, errors of torch.
        """
        began = time.monotonic()
        moves = self._moves(Path(directory))
        self._lanes().copy(moves)
        copied = time.monotonic() - began
        self.model_runner.model_config.model = directory
        return {"weights_copy_seconds": copied, **self._compare(moves, directory)}

    def _compare(self, moves: Sequence[Move], directory: str) -> dict[str, float]:
        began = time.monotonic()
        if not self._lanes().compare(moves):
            raise UnfitCheckpointError(f"the engine's weights are not those of {directory}")
        return {"weights_compare_seconds": time.monotonic() - began}

    def _lanes(self) -> Lanes:
        # vLLM creates the worker, so there is no constructor of ours.
        if not hasattr(self, "_evalrun_lanes"):
            self._evalrun_lanes = Lanes(self.model_runner.device)
        return self._evalrun_lanes

    def _moves(self, directory: Path) -> list[Move]:
        """Return where each stored tensor belongs. Touches no weight."""
        runner = self.model_runner
        model, device = runner.get_model(), runner.device
        _check_engine(runner, model, device)
        parameters = {name: parameter.data for name, parameter in model.named_parameters()}
        stored = read_index(directory)
        shapes = {
            name: Parameter(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
            for name, tensor in parameters.items()
        }
        tied = bool(getattr(runner.model_config.hf_config, "tie_word_embeddings", False))
        places = layout(
            shapes,
            stored,
            getattr(model, "packed_modules_mapping", {}),
            tied=tied,
            vocabulary=runner.model_config.get_vocab_size(),
            rank=Rank(get_tensor_model_parallel_rank(), get_tensor_model_parallel_world_size()),
        )
        moves = []
        for name, place in places.items():
            target = parameters[place.parameter][place.first : place.first + place.count]
            if target.is_meta or not target.is_contiguous():
                raise UnfitCheckpointError(f"the engine does not hold {place.parameter} as the checkpoint does")
            if place.count:
                moves.append(make_move(stored[name], place, target.reshape(-1).view(torch.uint8)))
        return moves


def _check_engine(runner: Any, model: Any, device: Any) -> None:  # noqa: ANN401 - vLLM's and torch's own types
    """Raise UnfitCheckpointError for an engine whose weights differ from its parameters."""
    config = runner.vllm_config
    name = type(model).__name__
    if name not in PLAIN_MODELS:
        raise UnfitCheckpointError(
            f"{name} may derive tensors from its weights: {', '.join(sorted(PLAIN_MODELS))} do not"
        )
    if config.model_config.quantization is not None:
        raise UnfitCheckpointError(f"the weights are quantised ({config.model_config.quantization})")
    parallel = config.parallel_config
    if parallel.world_size != parallel.tensor_parallel_size or parallel.data_parallel_size != 1:
        raise UnfitCheckpointError("the engine is spread over GPUs by more than tensor parallelism")
    if config.lora_config is not None:
        raise UnfitCheckpointError("the engine serves LoRA adapters, whose layers wrap the weights")
    if device.type == "cpu":
        from vllm import _custom_ops

        if _custom_ops._supports_onednn:
            raise UnfitCheckpointError("vLLM's CPU build keeps a packed copy of its weights")
