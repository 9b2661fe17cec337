"""The commands as functions.

Each function starts the same services as its command, waits for the end, and returns the results. They also work where
an event loop is already running, as in notebooks.
"""

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, overload

from evalrun._comparisons import Comparison, GateDecisions, SeveralRuns
from evalrun._results import RunResult
from evalrun._rows import PathLike, Rows, resolve_files
from evalrun_api.v1alpha1 import Grader
from evalrun_cli.comparisons.gate_policy import read_gates, read_policy
from evalrun_cli.comparisons.several_views import compare_places
from evalrun_cli.comparisons.views import compare_two, decide_gates
from evalrun_cli.gpu_host.options import GpuOptions
from evalrun_cli.local.options import LocalOptions
from evalrun_cli.local.quick_run import QuickRun
from evalrun_cli.local.run_session import RunOutcome, RunSession
from evalrun_cli.local.runs import judge_files, run_file, run_quickly
from evalrun_cli.local.workspace import default_directory
from evalrun_cli.run_gate import apply_gate
from evalrun_cli.terminal import Terminal
from evalrun_results.stored_run import StoredRun
from evalrun_runtime.exits import BadInputError, ExitCode


class RunFailedError(Exception):
    """A run ended without results. Its directory is intact: the same call with `resume` continues it."""

    def __init__(self, directory: Path, problem: str) -> None:
        super().__init__(f"{directory}: {problem}")
        self.directory = directory


def judge(
    problems: Rows,
    responses: Rows,
    *,
    output: PathLike | None = None,
    name: str = "judge",
    model: str | None = None,
    comparator: str | None = None,
    time_limit: float | None = None,
    grader: PathLike | None = None,
    samples: int | Literal["AsGiven"] | None = None,
    k: Sequence[int] = (),
    resume: bool = False,
    packages: PathLike | Sequence[PathLike] = (),
    slots: int | None = None,
    allow_uncontained: bool = False,
    progress: bool = True,
) -> RunResult:
    """Judge existing answers, like `evalrun judge`.

    Args:
        problems: files of problems, or their rows: dicts or a data frame of pandas, Polars, Arrow or `datasets`.
        responses: files of answers, or their rows. Rows are written beside the results first, to `<output>.rows/`.
        output: directory of the results; None: outputs/<name>_<time>.
        name: name of the run in the report and in comparisons.
        model: model that made the answers; None: not stated.
        comparator: comparator of stdin/stdout tests, one of `evalrun_registry.comparators.COMPUTED`; None: the
            problem's own, or `standard`.
        time_limit: CPU seconds per test, for problems without a limit.
        grader: a Python file with compute_score, which scores the answers instead of tests, or builtin:verl.
        samples: number of answers that each problem should have; a missing answer counts as not judged. None: as many
            as the problem with the most answers in its dataset has. "AsGiven": as many as the files hold; such a run
            decides no gate.
        k: values of k in pass@k; empty: 1, 10 and 100, as far as the answers per problem reach.
        resume: continue in a directory that holds a part of the same judgement.
        packages: directories of Python packages that answers and tests may import.
        slots: number of programs judged at once; None: one per CPU.
        allow_uncontained: judge even if programs cannot be contained. For trusted code only.
        progress: print the progress of the run.

    Raises:
        BadInputError: a file or an argument cannot be used; the message says what to write instead.
        RunFailedError: the run ended without results.
        KeyboardInterrupt: the run was stopped.
    """
    if output is None and resume:
        raise BadInputError("resume: names no directory: pass the output of the judgement to go on with")
    options = _options(slots, allow_uncontained, packages)
    directory = default_directory(name, datetime.now(UTC)) if output is None else Path(output)
    rows = directory.with_name(f"{directory.name}.rows").resolve()
    problem_files, response_files = (
        resolve_files(problems, "problems", rows),
        resolve_files(responses, "responses", rows),
    )

    def work(session: RunSession) -> RunOutcome:
        return judge_files(
            problem_files,
            response_files,
            output=directory,
            comparator=comparator,
            time_limit=time_limit,
            grader=None if grader is None else Grader(path=str(grader)),
            samples=samples,
            k=k,
            name=name,
            model=model,
            resume=resume,
            options=options,
            session=session,
        )

    return _run_work(work, progress=progress)


def run(
    file: PathLike | None = None,
    *,
    endpoint: str | Sequence[str] = (),
    model: str | None = None,
    dataset: PathLike | Sequence[PathLike] = (),
    samples: int = 1,
    temperature: float | None = None,
    output: PathLike | None = None,
    resume: PathLike | None = None,
    packages: PathLike | Sequence[PathLike] = (),
    slots: int | None = None,
    allow_uncontained: bool = False,
    gpus: str | None = None,
    replicas: int | None = None,
    progress: bool = True,
) -> RunResult:
    """Evaluate a model behind an existing endpoint, or on this machine's GPUs, like `evalrun run`.

    Args:
        file: file of an EvalRun. None: `endpoint`, `gpus`, `model` and `dataset` define the evaluation.
        endpoint: servers with the OpenAI API, or `builtin:demo`.
        model: id of the model in the server's /v1/models; with `gpus` a directory, or an id of the Hugging Face hub.
        dataset: files of problems, or `humaneval`, `mbpp`, `demo`.
        samples: samples per problem.
        temperature: sampling temperature; None: 0 for one sample, 0.8 for several.
        output: directory of the results; None: outputs/<run>_<time>.
        resume: directory of an earlier run of this file, which is continued.
        packages: directories of Python packages that answers and tests may import.
        slots: number of programs judged at once; None: one per CPU.
        allow_uncontained: judge even if programs cannot be contained. For trusted code only.
        gpus: this machine's GPUs for the run's replicas, as in --gpus: `all`, or `0,1`.
        replicas: number of replicas; None: as many as the file names.
        progress: print the progress of the run.

    Raises:
        BadInputError: a file or an argument cannot be used; the message says what to write instead.
        RunFailedError: the run ended without results.
        KeyboardInterrupt: the run was stopped.
    """
    endpoints = [endpoint] if isinstance(endpoint, str) else list(endpoint)
    options = _options(slots, allow_uncontained, packages)
    gpu_options = GpuOptions(gpus, replicas)
    place = None if output is None else Path(output)
    if file is not None and (model is not None or dataset or samples != 1 or temperature is not None):
        raise BadInputError(
            f"{file} says model, dataset, samples and temperature already: leave them away, or the file"
        )
    if file is None and resume is not None:
        raise BadInputError("resume needs the file of the run: pass evalrun.yaml from its directory")

    def work(session: RunSession) -> RunOutcome:
        if file is None:
            asked = QuickRun(endpoints, model, _texts(dataset), samples, temperature)
            return run_quickly(asked, output=place, options=options, gpu_options=gpu_options, session=session)
        return run_file(
            Path(file),
            output=place,
            endpoints=endpoints,
            resume=None if resume is None else Path(resume),
            options=options,
            gpu_options=gpu_options,
            session=session,
        )

    return _run_work(work, progress=progress)


def load(place: PathLike) -> RunResult:
    """Load the results of a run that has ended.

    Args:
        place: directory or URL of its outputs.

    Raises:
        BadInputError: no finished run is there, or a newer evalrun wrote it.
    """
    summary = StoredRun.open(str(place)).summary
    code = ExitCode.SUCCEEDED if summary["state"] == "Succeeded" else ExitCode.DEGRADED
    return RunResult(place, summary, apply_gate(code, summary))


def gate(run: PathLike | RunResult, policy: PathLike | Iterable[Mapping[str, Any]]) -> GateDecisions:
    """Decide whether a run may replace its baseline, like `evalrun gate`.

    Args:
        run: results of the run, or the directory or URL of its outputs.
        policy: a policy file, or its gates as dicts, e.g. `[{"baseline": first, "dataset": "mbpp", "metric":
            "accepted_at_1", "maxRegression": "0.05"}]`. A baseline may be a `RunResult`.

    Raises:
        BadInputError: policy, run or a baseline cannot be used.
    """
    if isinstance(policy, str | Path):
        file = Path(policy)
        gates = read_policy(file)
    else:
        file = Path("policy")
        gates = read_gates([{name: _value(value) for name, value in each.items()} for each in policy], str(file))
    return GateDecisions(tuple(decide_gates(_place(run), gates, file)))


def _value(value: object) -> object:
    return str(Path(value.place).resolve()) if isinstance(value, RunResult) else value


@overload
def compare(first: PathLike | RunResult, second: PathLike | RunResult, /) -> Comparison: ...


@overload
def compare(
    first: PathLike | RunResult,
    second: PathLike | RunResult,
    /,
    *more: PathLike | RunResult,
    all_pairs: bool = ...,
    pool_seeds: bool = ...,
) -> Comparison | SeveralRuns: ...


def compare(
    first: PathLike | RunResult,
    second: PathLike | RunResult,
    /,
    *more: PathLike | RunResult,
    all_pairs: bool = False,
    pool_seeds: bool = False,
) -> Comparison | SeveralRuns:
    """Compare two runs, or several with the first, problem by problem, like `evalrun compare`.

    Args:
        first: A, the baseline: its results, or the directory or URL of its outputs.
        second: B, the candidate, in the same forms.
        more: further runs. With these, or with `pool_seeds`, the result is a `SeveralRuns`: the metrics of each run,
            and each pair's difference of pass@1 with its p-value by Holm's correction.
        all_pairs: compare every pair of runs, not only A with each other run.
        pool_seeds: pool the runs that differ only in their seed.

    Raises:
        BadInputError: a place holds no finished run, or the runs share no dataset; for a `SeveralRuns` also: a run is
            named twice, or all runs have the same configuration.
    """
    places = [_place(each) for each in (first, second, *more)]
    if not more and not pool_seeds:
        found = compare_two(*places)
        return Comparison(found.baseline, found.candidate, found.warnings, found.datasets)
    several = compare_places(places, all_pairs=all_pairs, pool_seeds=pool_seeds)
    return SeveralRuns(several.configurations, several.warnings, several.datasets)


def _place(run: PathLike | RunResult) -> str:
    return str(run.place if isinstance(run, RunResult) else run)


def _run_work(work: Callable[[RunSession], RunOutcome], *, progress: bool) -> RunResult:
    # Plain lines are printed, because a live display would draw from another thread and into a notebook's widgets.
    console = Terminal(quiet=not progress, force_terminal=False, force_jupyter=False)
    outcome = _to_its_end(work, RunSession(console=console, progress=console))
    if outcome.code is ExitCode.STOPPED:
        raise KeyboardInterrupt
    if outcome.summary is None:
        raise RunFailedError(outcome.directory, outcome.problem)
    return RunResult(outcome.directory, outcome.summary, outcome.code)


def _to_its_end(work: Callable[[RunSession], RunOutcome], session: RunSession) -> RunOutcome:
    """Run `work` to completion, in a new thread if this thread already runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work(session)
    with ThreadPoolExecutor(1, thread_name_prefix="evalrun") as thread:
        # The work runs in the caller's context, by which Jupyter knows the cell that printed progress belongs to.
        ending = thread.submit(contextvars.copy_context().run, work, session)
        try:
            return ending.result()
        except KeyboardInterrupt:
            session.stop.press()
            return ending.result()


def _options(slots: int | None, allow_uncontained: bool, packages: PathLike | Sequence[PathLike]) -> LocalOptions:
    """Return the options for judging programs on this machine."""
    return LocalOptions(slots, allow_uncontained, packages=[Path(directory) for directory in _texts(packages)])


def _texts(paths: PathLike | Sequence[PathLike]) -> list[str]:
    return [str(paths)] if isinstance(paths, str | Path) else [str(path) for path in paths]
