"""`evalrun run --checkpoints`: runs each checkpoint, on replicas that load one checkpoint after another."""

import logging
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from evalrun_api.manifest import load_manifest, parse_evalrun
from evalrun_cli.comparisons.history import history as show_history
from evalrun_cli.gpu_host.options import NO_GPU_OPTIONS, GpuOptions
from evalrun_cli.gpu_host.preparation import PreparedReplicas, prepare_replicas
from evalrun_cli.local.local_run import page_beside
from evalrun_cli.local.options import LocalOptions, Printing
from evalrun_cli.local.processes import ServiceFailedError
from evalrun_cli.local.quick_run import QuickRun
from evalrun_cli.local.run_series import POLL_SECONDS, RESULTS, SeriesRun, run_in_order
from evalrun_cli.local.runs import quick_manifest
from evalrun_cli.local.workspace import default_directory
from evalrun_cli.terminal import open_console
from evalrun_generator.gpu_host.kept_ray import KEPT
from evalrun_generator.gpu_host.processes import end_process
from evalrun_registry.metrics import HEADLINE
from evalrun_runtime.exits import BadInputError, ExitCode

logger = logging.getLogger(__name__)

WEIGHTS_IN: Final = (".", "actor/huggingface", "huggingface")
"""Subdirectories of a checkpoint that may have configuration and weights: its top, or where verl writes them."""
START_SECONDS: Final = 300.0
END_SECONDS: Final = 60.0
SUMMARY: Final = "summary.json"
PATHS: Final = ("source", "promptTemplate")
"""Fields of a dataset that name files."""


@dataclass(frozen=True)
class Checkpoint:
    """A directory with a model, and a short name for it."""

    label: str
    directory: Path


def find_checkpoints(pattern: str) -> list[Checkpoint]:
    """Return the checkpoints that a pattern names, in the order of the numbers in their names.

    Raises:
        BadInputError: there are none, one holds no weights, or two have the same name.
    """
    place = Path(pattern).expanduser()
    found = [path for path in Path(place.anchor or ".").glob(str(place.relative_to(place.anchor))) if path.is_dir()]
    if not found:
        raise BadInputError(f"--checkpoints {pattern}: no directory: write a pattern in quotes, e.g. 'checkpoints/*'")
    checkpoints = []
    for place in sorted(found, key=_number_and_name):
        within = (place / each for each in WEIGHTS_IN)
        held = next((one for one in within if (one / "config.json").is_file() and any(one.glob("*.safetensors"))), None)
        if held is None:
            raise BadInputError(
                f"--checkpoints {place}: no config.json with *.safetensors, there or in actor/huggingface: merge a "
                "training's shards first"
            )
        checkpoints.append(Checkpoint(place.name, held.resolve()))
    labels = [each.label for each in checkpoints]
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise BadInputError(
            f"--checkpoints {pattern}: two directories are called {twice[0]}: their results would be one"
        )
    return checkpoints


def _number_and_name(path: Path) -> tuple[int, str]:
    numbers = re.findall(r"\d+", path.name)
    return int(numbers[-1]) if numbers else -1, path.name


def run_pattern(
    pattern: str,
    file: Path | None,
    asked: QuickRun,
    *,
    output: Path | None,
    request_seconds: float | None,
    options: LocalOptions,
    gpu_options: GpuOptions,
    printing: Printing,
) -> ExitCode:
    """Run the EvalRun of a file, or else of flags, for each checkpoint of a pattern. Raises BadInputError."""
    checkpoints = find_checkpoints(pattern)
    if file is None:
        first = replace(asked, model=str(checkpoints[0].directory), name=asked.name or "checkpoints")
        _, manifest = quick_manifest(first, gpu_options)
    else:
        manifest = read_manifest(file)
    progress = open_console(stderr=True, quiet=printing.quiet)
    return run_checkpoints(
        checkpoints,
        manifest,
        Path.cwd() if file is None else file.resolve().parent,
        output=output,
        flags=run_flags(options, request_seconds),
        gpu_options=gpu_options,
        view=printing.view,
        say=lambda text: progress.print(text, markup=False, highlight=False, soft_wrap=True),
    )


def run_checkpoints(
    checkpoints: Sequence[Checkpoint],
    manifest: Mapping[str, Any],
    base: Path,
    *,
    output: Path | None,
    flags: Sequence[str],
    gpu_options: GpuOptions = NO_GPU_OPTIONS,
    view: bool = False,
    say: Callable[[str], None],
) -> ExitCode:
    """Run an EvalRun for each checkpoint. Checkpoints whose results are in `output` already are skipped.

    Args:
        checkpoints: checkpoints in order.
        manifest: the EvalRun, with `spec.rollout`; its model is replaced.
        base: directory that relative sources lie in.
        output: directory of the results, with a subdirectory per checkpoint; None: a new directory.
        flags: flags of each run's command.
        gpu_options: the user's options for this machine's GPUs.
        view: serve the page of the runs meanwhile.
        say: shows a line to the user.

    Raises:
        BadInputError: the EvalRun, a flag or a checkpoint cannot be used.
    """
    replicas = plan_replicas(checkpoints, manifest, gpu_options)
    directory = open_directory(output, manifest)
    say(f"results: {directory}")
    runs = []
    for run in write_runs(checkpoints, manifest, base, replicas, directory):
        if (run.output / SUMMARY).is_file():
            say(f"{run.label}: has results already")
        else:
            runs.append(run)
    code = ExitCode.SUCCEEDED
    if runs:
        try:
            page = page_beside(directory, is_series=True) if view else nullcontext()
            with page, kept_lane(replicas, directory, flags) as lane:
                code = run_in_order(runs, lane, lambda run, code: say(f"{run.label}: {run.outcome(code)}"))
        except ServiceFailedError as error:
            logger.error("%s", error)
            return ExitCode.FAILED
    if code not in RESULTS:
        say(goes_on(directory))
    if any((directory / each.label / SUMMARY).is_file() for each in checkpoints):
        show_history([str(directory)], metric=HEADLINE.name, datasets=[], view="text", output=None)
    return code


def plan_replicas(
    checkpoints: Sequence[Checkpoint], manifest: Mapping[str, Any], gpu_options: GpuOptions
) -> PreparedReplicas:
    """Return the replicas that load the checkpoints' weights. Raises BadInputError."""
    first = parse_evalrun(apply_checkpoint(manifest, checkpoints[0]), where="--checkpoints", place="machine")
    if first.spec.rollout is None:
        raise BadInputError("--checkpoints: replicas are started here: leave --endpoint away, or add spec.rollout")
    if gpu_options.ray_address is not None:
        raise BadInputError("--ray-address: --checkpoints starts a Ray of its own: leave it away")
    return prepare_replicas(first.spec, gpu_options, "--checkpoints")


def open_directory(output: Path | None, manifest: Mapping[str, Any]) -> Path:
    """Create the directory of a series, `output` or a new directory, and return it."""
    directory = (output or default_directory(str(manifest["metadata"]["name"]), datetime.now(UTC))).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def write_runs(
    checkpoints: Sequence[Checkpoint],
    manifest: Mapping[str, Any],
    base: Path,
    replicas: PreparedReplicas,
    directory: Path,
) -> list[SeriesRun]:
    """Write the EvalRun of each checkpoint into a series' directory, and return the runs."""
    rollout = replicas.spec.rollout
    spec = {
        **manifest["spec"],
        "rollout": None if rollout is None else rollout.model_dump(mode="json", by_alias=True, exclude_none=True),
    }
    given = {**manifest, "spec": spec}
    return [write_run(apply_checkpoint(given, each), base, each.label, directory) for each in checkpoints]


def write_run(manifest: Mapping[str, Any], base: Path, label: str, directory: Path) -> SeriesRun:
    """Write an EvalRun, whose relative sources lie in `base`, into a series' directory, and return its run."""
    file = directory / f"{label}.yaml"
    file.write_text(yaml.safe_dump(_resolve_paths(manifest, base), sort_keys=False, allow_unicode=True))
    return SeriesRun(label, file, directory / label)


def run_flags(options: LocalOptions, request_seconds: float | None) -> list[str]:
    """Return the flags of the command of each run of a series."""
    return [*_make_flags(options), *([] if request_seconds is None else ["--request-timeout", str(request_seconds)])]


def goes_on(directory: Path) -> str:
    """Return the line about a series that was stopped."""
    return f"nothing is lost: the same command with --output {shlex.quote(str(directory))} goes on"


def read_manifest(file: Path) -> dict[str, Any]:
    """Return the EvalRun of a file, as JSON. Raises BadInputError."""
    manifest: dict[str, Any] = load_manifest(file, place="machine").model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    return manifest


def apply_checkpoint(manifest: Mapping[str, Any], checkpoint: Checkpoint) -> dict[str, Any]:
    """Return an EvalRun of a checkpoint, with the checkpoint's model.

    Its step is the number in the checkpoint's name. If the name has no number, the step of the file stays.
    """
    spec = dict(manifest["spec"])
    spec["model"] = {**dict(spec.get("model") or {}), "path": str(checkpoint.directory)}
    step = _number_and_name(Path(checkpoint.label))[0]
    if step >= 0:
        spec["lineage"] = {**dict(spec.get("lineage") or {}), "step": step}
    return {**manifest, "spec": spec}


@contextmanager
def kept_lane(replicas: PreparedReplicas, logs: Path, flags: Sequence[str]) -> Iterator[list[str]]:
    """Start a Ray cluster for replicas that several runs use in turn. Yield the flags of those runs.

    Raises:
        ServiceFailedError: the cluster did not start.
    """
    with kept_ray(replicas.flags, logs) as address:
        yield ["--gpu-python", str(replicas.python), "--ray-address", address, *flags]


@contextmanager
def kept_ray(host_flags: Sequence[str], directory: Path) -> Iterator[str]:
    """Start a Ray cluster on this machine. Yield its address for `--ray-address`. It ends with the context.

    Args:
        host_flags: flags for the interpreter and the GPUs.
        directory: gets the cluster's logs.

    Raises:
        ServiceFailedError: the cluster did not start.
    """
    with tempfile.TemporaryDirectory(prefix="evalrun-kept-") as private:
        file, log = Path(private) / "ray.json", directory / "kept_ray.log"
        command = [sys.executable, "-m", "evalrun_generator.gpu_host.kept_ray", *host_flags]
        command += ["--file", str(file), "--logs", str(directory)]
        with log.open("wb") as output:
            # The process has a session of its own, because Ctrl-C must not end it before the runs that use it.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not file.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise ServiceFailedError(f"Ray did not start: see {log}")
                time.sleep(POLL_SECONDS)
            yield f"{KEPT}{file}"
        finally:
            end_process(process, END_SECONDS)


def _resolve_paths(manifest: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Return an EvalRun whose files have absolute paths. Pure but for resolving them."""
    datasets = []
    for dataset in manifest["spec"]["datasets"]:
        found = {name: _absolute(value, base) if name in PATHS else value for name, value in dataset.items()}
        if isinstance(grader := dataset.get("grader"), dict) and "path" in grader:
            found["grader"] = {**grader, "path": _absolute(grader["path"], base)}
        datasets.append(found)
    spec = {**manifest["spec"], "datasets": datasets}
    if "gates" in spec:
        spec["gates"] = [
            {**gate, "baseline": _absolute(gate["baseline"], base)} if "baseline" in gate else gate
            for gate in spec["gates"]
        ]
    return {**manifest, "spec": spec}


def _absolute(place: str, base: Path) -> str:
    return place if "://" in place or place.startswith("builtin:") else str((base / place).resolve())


def _make_flags(options: LocalOptions) -> list[str]:
    """Return the flags of a command that gives the same options."""
    flags = []
    for name, value in options.flags.items():
        if isinstance(value, (list, tuple)):
            flags += [part for each in value for part in (name, str(each))]
        elif value is True:
            flags.append(name)
        elif value is not None:
            flags += [name, str(value)]
    return flags
