"""The command itself, and the flags that several subcommands share."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from evalrun_cli.clock import stopwatch
from evalrun_cli.gpu_host.options import GpuOptions
from evalrun_cli.local.options import LocalOptions, Printing
from evalrun_runtime.distribution import NAME

SINCE_START = stopwatch()
"""Seconds since this module was imported. It is imported first, so that the time of a command includes its start."""

EXIT_CODES = """\b
Exit codes:
  0 succeeded   1 failed   2 bad input   3 degraded: some problems could not be judged
  4 gate failed   5 gate inconclusive   130 stopped, can be resumed"""

EXISTING_FILE = click.Path(path_type=Path)
NAMESPACE = click.option(
    "-n", "--namespace", metavar="NAME", help="In a cluster: the namespace. Default: that of the current context."
)

TO_FILE = click.option("--output", type=click.Path(path_type=Path), help="Write to this file instead of the terminal.")

Command = Callable[..., int]


class LocalDirectory(click.Path):
    """A directory of this machine. A URL is refused, because it would become a directory of that name."""

    name = "directory"

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path. Fails if the value is a URL."""
        if "://" in str(value):
            self.fail(
                f"{value}: is a URL: name a directory of this machine, and copy the results from there", param, ctx
            )
        return Path(str(value))


class Numbers(click.ParamType[Sequence[int]]):
    """Whole numbers with commas between them."""

    name = "numbers"

    def convert(
        self, value: str | Sequence[int], param: click.Parameter | None, ctx: click.Context | None
    ) -> Sequence[int]:
        """Return the numbers."""
        if not isinstance(value, str):
            return value
        parts = value.split(",")
        if not all(part.strip().isdecimal() and int(part) for part in parts):
            self.fail(f"{value!r}: write numbers from 1 with commas between them, e.g. 1,10", param, ctx)
        return [int(part) for part in parts]


def add_judging_flags(command: Command) -> Command:
    """Add the flags for judging on this machine; the command receives them as `options`."""

    @click.option("--slots", type=click.IntRange(min=1), help="Programs judged at once. Default: one per CPU.")
    @click.option(
        "--allow-uncontained",
        is_flag=True,
        help="Judge even if this machine cannot contain programs. Trusted code only.",
    )
    @click.option(
        "--sandbox-fusion",
        metavar="URL",
        help="Judge with the SandboxFusion server at this address instead of starting a sandbox. judgeMode: Submit "
        "needs one that has the tests. Set its token in EVALRUN_JUDGE_SANDBOX_TOKEN.",
    )
    @click.option(
        "--packages",
        multiple=True,
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="Directory of Python packages that answers and tests may import, e.g. from `pip install --target DIR "
        "numpy`; "
        "may be repeated.",
    )
    @wraps(command)
    def with_options(
        *,
        slots: int | None,
        allow_uncontained: bool,
        sandbox_fusion: str | None,
        packages: Sequence[Path],
        **others: Any,  # noqa: ANN401 - whatever the command's own flags are
    ) -> int:
        return command(options=LocalOptions(slots, allow_uncontained, sandbox_fusion, packages), **others)

    return with_options


def add_gpu_flags(command: Command) -> Command:
    """Add the flags for replicas on this machine; the command receives them as `gpu_options`."""

    @click.option(
        "--gpus",
        metavar="all|0,1",
        help="GPUs of this machine for the run's replicas, as nvidia-smi numbers them. Default with spec.rollout: all. "
        "cpu or cpu:N: a tiny model on the CPU build, which pretends N GPUs.",
    )
    @click.option("--replicas", type=click.IntRange(1, 64), help="Replicas to start here. Default: as FILE has them.")
    @click.option(
        "--gpu-python",
        metavar="PROGRAM",
        type=click.Path(path_type=Path),
        help="Interpreter with Ray, verl and vLLM. Default: that of `evalrun setup gpu`.",
    )
    @click.option("--ray-address", metavar="HOST:PORT", help="Ray cluster to join, instead of starting one here.")
    @wraps(command)
    def with_gpu_options(
        *,
        gpus: str | None,
        replicas: int | None,
        gpu_python: Path | None,
        ray_address: str | None,
        **others: Any,  # noqa: ANN401 - whatever the command's own flags are
    ) -> int:
        return command(gpu_options=GpuOptions(gpus, replicas, gpu_python, ray_address), **others)

    return with_gpu_options


def add_printing_flags(command: Command) -> Command:
    """Add the flags for a run's output. The command receives them as `printing`."""

    @click.option("-q", "--quiet", is_flag=True, help="Print the results alone: no progress and no warnings.")
    @click.option("--json", "as_json", is_flag=True, help="Print the results as JSON: summary.json and its directory.")
    @wraps(command)
    def with_printing(*, quiet: bool, as_json: bool, **others: Any) -> int:  # noqa: ANN401 - the command's own flags
        return command(printing=Printing(quiet, as_json), **others)

    return with_printing


def add_view_flag(command: Command) -> Command:
    """Add `--view` to a command below `add_printing_flags`; the command finds it in `printing`."""

    @click.option(
        "--view",
        is_flag=True,
        help="Serve the page of all samples while the run goes on, and print its address. `evalrun view DIR` "
        "opens it again later.",
    )
    @wraps(command)
    def with_view(*, view: bool, printing: Printing, **others: Any) -> int:  # noqa: ANN401 - the command's own flags
        return command(printing=replace(printing, view=view), **others)

    return with_view


def add_format_flags(command: Command) -> Command:
    """Add the flags for a comparison's format and destination: `view` and `output`."""
    return add_formats("text", "markdown", "json", "html")(command)


def add_formats(*views: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the flags for the format, by default the first of `views`, and the destination."""
    form = click.option(
        "--format",
        "view",
        type=click.Choice(views),
        default=views[0],
        show_default=True,
        help="Output format.",
    )
    return lambda command: form(TO_FILE(command))


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name=NAME, message="evalrun %(version)s")
def evalrun() -> None:
    """Evaluate coding models with verdicts that can be trusted.

    \b
    Try it:            evalrun run --endpoint builtin:demo
    A served model:    evalrun run --endpoint http://127.0.0.1:8000/v1 --model NAME --dataset humaneval
    Your own answers:  evalrun judge --problems HumanEval.jsonl.gz --responses answers.jsonl --output out/

    Programs are judged in a sandbox whose containment is probed at start; if this machine cannot contain them, nothing
    runs. Samples the judge cannot decide are never counted against the model.
    """
