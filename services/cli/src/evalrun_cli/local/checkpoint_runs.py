"""`evalrun run --checkpoints`: a run for each of some checkpoints, on replicas that take one's weights after another's.

Each run is a command of its own. They start one ahead of the other: while one generates, the next has its services up
and its checkpoint read, and waits for its turn on the replicas; while it generates, the one before may still be judged.
"""

import json
import logging
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from evalrun_api.manifest import evalrun_of, load_manifest
from evalrun_cli.comparisons.history import history as show_history
from evalrun_cli.gpu_host.options import NO_GPU_OPTIONS, GpuOptions
from evalrun_cli.gpu_host.preparation import prepare_replicas
from evalrun_cli.local.options import LocalOptions
from evalrun_cli.local.processes import ServiceFailedError
from evalrun_cli.local.quick_run import QuickRun
from evalrun_cli.local.runs import quick_manifest
from evalrun_cli.local.workspace import WORK_ORDER, default_directory
from evalrun_cli.terminal import open_console
from evalrun_generator.gpu_host.kept_ray import KEPT
from evalrun_registry.metrics import HEADLINE
from evalrun_runtime.exits import BadInputError, ExitCode

logger = logging.getLogger(__name__)

AT_ONCE: Final = 4
"""Runs whose services are up: one that generates, some that get ready for their turn, and those still being judged."""
WEIGHTS_IN: Final = (".", "actor/huggingface", "huggingface")
"""Where a checkpoint's directory has configuration and weights: at its top, or where verl writes them."""
START_SECONDS: Final = 300.0
END_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05
RESULTS: Final = frozenset({ExitCode.SUCCEEDED, ExitCode.DEGRADED, ExitCode.GATE_FAILED, ExitCode.GATE_INCONCLUSIVE})
"""Codes of a run that has results."""
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
        BadInputError: there are none, or one holds no weights.
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
    quiet: bool,
) -> ExitCode:
    """Run the EvalRun of a file, or else of flags, for each checkpoint of a pattern. Raises BadInputError."""
    checkpoints = find_checkpoints(pattern)
    if file is None:
        first = replace(asked, model=str(checkpoints[0].directory), name=asked.name or "checkpoints")
        _, manifest = quick_manifest(first, gpu_options)
    else:
        manifest = load_manifest(file, place="machine").model_dump(mode="json", by_alias=True, exclude_none=True)
    progress = open_console(stderr=True, quiet=quiet)
    return run_checkpoints(
        checkpoints,
        manifest,
        Path.cwd() if file is None else file.resolve().parent,
        output=output,
        request_seconds=request_seconds,
        options=options,
        gpu_options=gpu_options,
        say=lambda text: progress.print(text, markup=False, highlight=False, soft_wrap=True),
    )


def run_checkpoints(
    checkpoints: Sequence[Checkpoint],
    manifest: Mapping[str, Any],
    base: Path,
    *,
    output: Path | None,
    request_seconds: float | None,
    options: LocalOptions,
    gpu_options: GpuOptions = NO_GPU_OPTIONS,
    say: Callable[[str], None],
) -> ExitCode:
    """Run an EvalRun for each checkpoint; those whose results are in `output` already are left alone.

    Args:
        checkpoints: in order.
        manifest: the EvalRun, with `spec.rollout`; its model is replaced.
        base: directory that relative sources lie in.
        output: of the results, a directory per checkpoint; None: a new one.
        request_seconds: timeout of a request; None: by its max_tokens.
        options: what the user says about this machine.
        gpu_options: likewise.
        say: gets a line per checkpoint.

    Raises:
        BadInputError: the EvalRun, a flag or a checkpoint cannot be used.
    """
    directory = (output or default_directory(str(manifest["metadata"]["name"]), datetime.now(UTC))).resolve()
    first = evalrun_of(with_model(manifest, checkpoints[0]), where="--checkpoints", place="machine")
    if first.spec.rollout is None:
        raise BadInputError("--checkpoints: replicas are started here: leave --endpoint away, or add spec.rollout")
    if gpu_options.ray_address is not None:
        raise BadInputError("--ray-address: --checkpoints starts a Ray of its own: leave it away")
    fitted, host_flags = prepare_replicas(first.spec, gpu_options, "--checkpoints")
    rollout = (
        None if fitted.rollout is None else fitted.rollout.model_dump(mode="json", by_alias=True, exclude_none=True)
    )
    directory.mkdir(parents=True, exist_ok=True)
    say(f"results: {directory}")
    python = next(flag.partition("=")[2] for flag in host_flags if flag.startswith("--gpu-python="))
    runs = []
    for checkpoint in checkpoints:
        place = directory / checkpoint.label
        if (place / "summary.json").is_file():
            say(f"{checkpoint.label}: has results already")
            continue
        written = with_model({**manifest, "spec": {**manifest["spec"], "rollout": rollout}}, checkpoint)
        file = directory / f"{checkpoint.label}.yaml"
        file.write_text(yaml.safe_dump(_located(written, base), sort_keys=False, allow_unicode=True))
        runs.append(_OneRun(checkpoint.label, file, place))
    flags = ["--gpu-python", python, *_given(options)]
    flags += [] if request_seconds is None else ["--request-timeout", str(request_seconds)]
    code = ExitCode.SUCCEEDED
    if runs:
        try:
            with kept_ray(host_flags, directory) as address:
                code = _run_in_order(runs, ["--ray-address", address, *flags], say)
        except ServiceFailedError as error:
            logger.error("%s", error)
            return ExitCode.FAILED
    if code not in RESULTS:
        say(f"nothing is lost: the same command with --output {shlex.quote(str(directory))} goes on")
    if any((directory / each.label / "summary.json").is_file() for each in checkpoints):
        show_history([str(directory)], metric=HEADLINE.name, datasets=[], view="text", output=None)
    return code


def with_model(manifest: Mapping[str, Any], checkpoint: Checkpoint) -> dict[str, Any]:
    """Return an EvalRun of a checkpoint: its model, and its step where its name has a number and the file says none."""
    spec = dict(manifest["spec"])
    spec["model"] = {**dict(spec.get("model") or {}), "path": str(checkpoint.directory)}
    step = _number_and_name(Path(checkpoint.label))[0]
    if step >= 0:
        spec["lineage"] = {**dict(spec.get("lineage") or {}), "step": step}
    return {**manifest, "spec": spec}


@dataclass(frozen=True)
class _OneRun:
    label: str
    file: Path
    output: Path

    def command(self, flags: Sequence[str]) -> list[str]:
        """Return the command that runs it, or goes on with it."""
        started = (self.output / WORK_ORDER).is_file()
        where = ["--resume" if started else "--output", str(self.output)]
        return [sys.executable, "-m", "evalrun_cli", "run", str(self.file), "--local", *where, *flags]

    def outcome(self, code: int) -> str:
        """Return what became of it, in a few words."""
        if code in RESULTS:
            return str(json.loads((self.output / "summary.json").read_bytes())["state"])
        return f"no results, exit code {code}: see {self.file.with_suffix('.log')}"


def _run_in_order(runs: Sequence[_OneRun], flags: Sequence[str], say: Callable[[str], None]) -> ExitCode:
    """Run them, `AT_ONCE` at a time. What keeps one from running would keep the others too: it ends the series."""
    waiting, going, codes = list(runs), dict[str, "subprocess.Popen[bytes]"](), set[int]()

    def stop(number: int, frame: object) -> None:
        del number, frame
        for process in going.values():
            process.send_signal(signal.SIGINT)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)  # Ctrl-C reaches the runs by itself
    try:
        while waiting or going:
            while waiting and len(going) < AT_ONCE:
                run = waiting.pop(0)
                with run.file.with_suffix(".log").open("ab") as log:
                    command = run.command(flags)
                    going[run.label] = subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log
                    )
            for run in runs:
                if run.label in going and (code := going[run.label].poll()) is not None:
                    del going[run.label]
                    codes.add(code)
                    say(f"{run.label}: {run.outcome(code)}")
            if codes - RESULTS:
                waiting.clear()
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        for process in going.values():
            process.wait()
        return ExitCode.STOPPED
    finally:
        signal.signal(signal.SIGTERM, before)
    return worst(codes)


def worst(codes: Iterable[int]) -> ExitCode:
    """Return the code of a series: of a run without results, if any, else of the worst results. Pure."""
    without = sorted(set(codes) - RESULTS)
    if without:
        return ExitCode(without[-1]) if without[0] > 0 else ExitCode.FAILED
    return ExitCode(max(codes, default=ExitCode.SUCCEEDED))


@contextmanager
def kept_ray(host_flags: Sequence[str], directory: Path) -> Iterator[str]:
    """Start a Ray cluster on this machine; return its address for `--ray-address`. It ends with the context.

    Args:
        host_flags: the interpreter and the GPUs.
        directory: gets its logs.

    Raises:
        ServiceFailedError: it did not start.
    """
    with tempfile.TemporaryDirectory(prefix="evalrun-kept-") as private:
        file, log = Path(private) / "ray.json", directory / "kept_ray.log"
        command = [sys.executable, "-m", "evalrun_generator.gpu_host.kept_ray", *host_flags]
        command += ["--file", str(file), "--logs", str(directory)]
        with log.open("wb") as output:
            # In a session of its own: Ctrl-C must not end it before the runs that use it.
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
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _located(manifest: Mapping[str, Any], base: Path) -> dict[str, Any]:
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


def _given(options: LocalOptions) -> list[str]:
    """Return the flags of the command that have the same options."""
    flags = []
    for name, value in options.flags.items():
        if isinstance(value, (list, tuple)):
            flags += [part for each in value for part in (name, str(each))]
        elif value is True:
            flags.append(name)
        elif value is not None:
            flags += [name, str(value)]
    return flags
