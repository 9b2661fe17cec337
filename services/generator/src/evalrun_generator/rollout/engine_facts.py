"""Reads a replica's versions, GPU and the weights it actually loaded, for run_info.json.

Everything is read on the engine's machine. A fact that cannot be read is omitted; the replica keeps serving.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from evalrun_generator.template_facts import template_facts

WEIGHT_FILES: Final = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
"""Formats of weights in order of preference: hubs store the same weights in several formats."""
FILES_AT_ONCE: Final = 4
READ_AHEAD_NICENESS: Final = 10
"""Niceness of the threads that read the next checkpoint: the engine and the judge of the present checkpoint come first.
"""
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_SNAPSHOT: Final = re.compile(r"models--(?P<model>[^/]+)/snapshots/(?P<commit>[0-9a-f]{40})(?:/|$)")
_PIECE: Final = 1 << 20


def engine_facts(engine: str, vllm_config: Any) -> dict[str, str]:  # noqa: ANN401 - vLLM's own type
    """Return the versions in this process and how its engine reports having loaded the model.

    Args:
        engine: `vllm` or `sglang`.
        vllm_config: vLLM's own configuration object, or None if the server does not expose it.
    """
    facts = {"engine": engine, "engine_version": package_version(engine), "torch": package_version("torch")}
    facts |= {"verl": package_version("verl"), "ray": package_version("ray"), **_gpu()}
    if vllm_config is not None:
        model = vllm_config.model_config
        facts |= {
            "model": str(model.model),
            "dtype": str(model.dtype).removeprefix("torch."),
            "quantization": str(model.quantization or ""),
        }
    return {name: value for name, value in facts.items() if value}


def sglang_facts(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return how SGLang's process that holds the weights reports having loaded them. Pure.

    Args:
        settings: settings of that process; see `SglangServer`.
    """
    names = {"model_path": "model", "dtype": "dtype", "quantization": "quantization"}
    return {ours: str(settings[theirs]) for theirs, ours in names.items() if settings.get(theirs)}


def package_version(package: str) -> str:
    """Return the version of an installed package, or an empty text if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _gpu() -> dict[str, str]:
    cuda = _cuda()
    try:
        import pynvml
    except ImportError:
        return cuda
    try:
        pynvml.nvmlInit()
        try:
            name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))
            return cuda | {"gpu": _text(name), "driver": _text(pynvml.nvmlSystemGetDriverVersion())}
        finally:
            pynvml.nvmlShutdown()
    # The replica runs on CPUs.
    except pynvml.NVMLError:
        return cuda


def _cuda() -> dict[str, str]:
    try:
        import torch
    except ImportError:
        return {}
    return {"cuda": torch.version.cuda or ""}


def _text(value: str | bytes) -> str:
    # Older bindings return bytes.
    return value.decode() if isinstance(value, bytes) else value


def model_facts(path: str, revision: str | None, *, aside: bool = False) -> dict[str, str]:
    """Return the weights' digest and, for a hub model, the commit of its revision. Reads all weights.

    With `aside` the weights are read at a lower priority than the present work, because their turn comes later.
    """
    directory = model_folder(path, revision)
    if directory is None:
        return {}
    facts = {"weights_sha256": weights_digest(directory, aside=aside), **template_facts(read_template(directory))}
    commit = _SNAPSHOT.search(f"{directory.absolute()}/")
    if commit is not None:
        facts["model_revision"] = commit["commit"]
    return {name: value for name, value in facts.items() if value}


def model_folder(path: str, revision: str | None) -> Path | None:
    """Return a model's directory on this machine (for a hub id: its snapshot), or None if it is not here."""
    if Path(path).is_dir():
        return Path(path)
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(path, revision=revision, local_files_only=True))
    # The model is not in the cache, or its name is no hub id.
    except (ImportError, OSError, ValueError):
        return None


def read_template(directory: Path) -> str:
    """Return the chat template that a model's tokenizer applies by default; empty if it has none that can be read."""
    try:
        if (file := directory / "chat_template.jinja").is_file():
            return file.read_text(encoding="utf-8")
        held = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8")).get("chat_template")
    except (OSError, ValueError, AttributeError):
        return ""
    # The tokenizer has several templates by name.
    if isinstance(held, list):
        held = next((each.get("template") for each in held if each.get("name") == "default"), None)
    return held if isinstance(held, str) else ""


def weights_digest(directory: Path, *, aside: bool = False) -> str:
    """Return the SHA-256 over the names and digests of a model's weight files, or an empty text if it has none.

    For `aside` see `model_facts`.
    """
    files = next((found for kind in WEIGHT_FILES if (found := sorted(directory.glob(kind)))), [])
    if not files:
        return ""
    with ThreadPoolExecutor(FILES_AT_ONCE, initializer=_step_aside if aside else None) as pool:
        return combine_digests(zip((file.name for file in files), pool.map(file_digest, files), strict=True))


def _step_aside() -> None:
    """Lower the priority of this thread only: on Linux each thread has its own."""
    os.setpriority(os.PRIO_PROCESS, 0, max(os.getpriority(os.PRIO_PROCESS, 0), READ_AHEAD_NICENESS))


def combine_digests(digests: Iterable[tuple[str, str]]) -> str:
    """Return a SHA-256 over the names and digests of files."""
    return hashlib.sha256("".join(f"{digest}  {name}\n" for name, digest in digests).encode()).hexdigest()


def file_digest(file: Path) -> str:
    """Return a file's SHA-256. The hub's cache names large files by this digest, so they are not read."""
    target = file.resolve().name
    if file.is_symlink() and _SHA256.fullmatch(target):
        return target
    whole = hashlib.sha256()
    with file.open("rb") as stream:
        while piece := stream.read(_PIECE):
            whole.update(piece)
    return whole.hexdigest()


def is_same_model(asked: str, loaded: str) -> bool:
    """Return whether an engine loaded the requested model: that path, or a snapshot of that hub id."""
    if loaded.rstrip("/") == asked.rstrip("/"):
        return True
    snapshot = _SNAPSHOT.search(f"{loaded}/")
    return snapshot is not None and snapshot["model"] == asked.replace("/", "--")
