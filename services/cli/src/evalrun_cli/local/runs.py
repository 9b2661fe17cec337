"""Run configuration of a command: the user's input is checked before anything is started or written."""

import difflib
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from evalrun_api.manifest import load_manifest, parse_evalrun
from evalrun_api.run_config import EvalRunSpec, RunConfig, parse_run_config
from evalrun_api.v1alpha1 import MAX_DATASETS, Dataset, EvalRun, Grader
from evalrun_cli.clock import Clock, stopwatch
from evalrun_cli.gpu_host.gpus import choose_gpus, find_gpus
from evalrun_cli.gpu_host.options import NO_GPU_OPTIONS, GpuOptions
from evalrun_cli.gpu_host.preparation import prepare_replicas
from evalrun_cli.local.exclusions import read_exclusions
from evalrun_cli.local.local_run import CompletionSource, run_to_end
from evalrun_cli.local.options import PRINT_ALL, LocalOptions, Printing
from evalrun_cli.local.quick_run import QuickRun, file_text, make_manifest, make_rollout
from evalrun_cli.local.run_session import RunOutcome, RunSession, session_for
from evalrun_cli.local.start_settings import StartSettings, read_start_settings
from evalrun_cli.local.workspace import QUICK_FILE, Workspace, create, default_directory, order_in, reopen
from evalrun_cli.run_gate import check_baseline
from evalrun_client.grader import read_dataset_grader
from evalrun_data import demo
from evalrun_data.published import EVALUATED, PUBLISHED
from evalrun_data.readers import load_problem_files, merge_sources
from evalrun_data.records import Problem
from evalrun_data.responses import load_responses
from evalrun_data.shards import list_files
from evalrun_data.sources import Source, open_source
from evalrun_generator.endpoints.base_url import base_url
from evalrun_runtime.exits import BadInputError

JudgeMode = Literal["RunCode", "Submit"]
BUILTIN = "builtin:"
VOLUME = "pvc://"
EXTERNAL_MODEL = "answers-made-elsewhere"


def run_file(
    file: Path,
    *,
    output: Path | None,
    endpoints: Sequence[str],
    resume: Path | None,
    request_seconds: float | None = None,
    options: LocalOptions,
    gpu_options: GpuOptions = NO_GPU_OPTIONS,
    session: RunSession | None = None,
    race_problems: int | None = None,
) -> RunOutcome:
    """Run the EvalRun of a file on this machine. A run in a race ends after `race_problems` of each dataset.

    Raises:
        BadInputError: the file, a flag, a dataset or an endpoint cannot be used.
    """
    if output is not None and resume is not None:
        raise BadInputError("--resume names the directory already: leave --output away")
    manifest = load_manifest(file, place="machine")
    for gate in manifest.spec.gates:
        check_baseline(gate, file)
    settings = StartSettings.from_options(options, tuple(endpoints), request_seconds, gpu_options)
    workspace, generation = _prepare_run(
        manifest, file, settings, output=output, resume=resume, race_problems=race_problems
    )
    return run_to_end(workspace, options, generation, session)


def run_quickly(
    asked: QuickRun,
    *,
    output: Path | None,
    request_seconds: float | None = None,
    options: LocalOptions,
    gpu_options: GpuOptions = NO_GPU_OPTIONS,
    session: RunSession | None = None,
) -> RunOutcome:
    """Run an evaluation from flags alone, and write the equivalent manifest into the outputs.

    Raises:
        BadInputError: a flag, a dataset or an endpoint cannot be used.
    """
    asked, document = quick_manifest(asked, gpu_options)
    manifest = parse_evalrun(document, where="--dataset, --model, --name, --label and other flags", place="machine")
    settings = StartSettings.from_options(options, tuple(asked.endpoints), request_seconds, gpu_options)
    workspace, generation = _prepare_run(manifest, Path(QUICK_FILE), settings, output=output, resume=None)
    (workspace.directory / QUICK_FILE).write_text(file_text(document, asked, gpu_options))
    return run_to_end(workspace, options, generation, session)


def quick_manifest(asked: QuickRun, gpu_options: GpuOptions) -> tuple[QuickRun, dict[str, Any]]:
    """Return the request with its defaults, and the EvalRun that does the same. Raises BadInputError."""
    asked = asked.fill_defaults(gpu_options)
    for url in asked.endpoints:
        check_endpoint(url)
    sources = [found for wanted in dict.fromkeys(asked.datasets) for found in _quick_sources(wanted)]
    return asked, make_manifest(asked, sources, _quick_rollout(asked, gpu_options))


def resume_directory(
    directory: Path,
    *,
    endpoints: Sequence[str] = (),
    request_seconds: float | None = None,
    gpu_options: GpuOptions = NO_GPU_OPTIONS,
    printing: Printing = PRINT_ALL,
    clock: Clock | None = None,
) -> RunOutcome:
    """Resume the run in a directory, with the settings of its start.

    Args:
        directory: directory of a run, a judgement or a rejudging.
        endpoints: replace the endpoints of the start, which may have moved.
        request_seconds: replaces that of the start.
        gpu_options: replace those of the start, each by itself.
        printing: what is printed.
        clock: clock of the command; None: it begins now.

    Raises:
        BadInputError: there is no run, or it cannot continue here.
    """
    place = directory.resolve()
    order, settings = _whole(order_in(place)), read_start_settings(place)
    changes = {"endpoints": tuple(endpoints), "request_seconds": request_seconds, **vars(gpu_options)}
    settings = settings.model_copy(update={name: value for name, value in changes.items() if value})
    options = settings.options
    options.check(order.spec.to_wire())
    generation = None
    if order.responses is None and order.rejudge is None:
        spec, generation = _generation(order.spec, settings, str(directory))
        order = order.model_copy(update={"spec": spec})
    workspace = reopen(place, order)
    settings.write(place)
    return run_to_end(workspace, options, generation, session_for(printing, clock or stopwatch(), None))


def _quick_rollout(asked: QuickRun, gpu_options: GpuOptions) -> dict[str, Any] | None:
    """Return the `spec.rollout` of a run without a file; None: the run uses endpoints."""
    if asked.endpoints:
        return None
    chosen = choose_gpus(gpu_options.gpus, find_gpus())
    return make_rollout(chosen.count, asked.tensor_parallel, on_cpu=chosen.pretended > 0)


def _quick_sources(wanted: str) -> list[tuple[str, str]]:
    """Return name and source of the datasets that `--dataset` names: a published dataset, or all datasets in a file."""
    if wanted in EVALUATED and not Path(wanted).exists():
        _check_reachable(wanted, PUBLISHED[wanted].source)
        return [(wanted, PUBLISHED[wanted].source)]
    if "://" not in wanted and not wanted.startswith(BUILTIN) and not Path(wanted).exists():
        known = ", ".join(EVALUATED)
        near = difflib.get_close_matches(wanted.lower(), EVALUATED, 1)
        hint = f": did you mean {near[0]}?" if near else ""
        raise BadInputError(f"--dataset {wanted}: no such file, nor one of the published datasets ({known}){hint}")
    return [(name, places[0]) for name, places in read_problems([wanted])[1].items()]


def _check_reachable(name: str, source: str) -> None:
    """Raise BadInputError if a published file cannot be downloaded: the user may have a copy."""
    if not source.startswith("https://"):
        return
    try:
        with open_source(source, Path()):
            return
    except BadInputError as error:
        raise BadInputError(
            f"--dataset {name}: {error}. Without a network, name a copy of that file: --dataset FILE"
        ) from error


def check_endpoint(url: str) -> None:
    """Raise BadInputError for an address that `--endpoint` does not accept."""
    try:
        (demo.check_name if url.startswith(BUILTIN) else base_url)(url)
    except BadInputError as error:
        raise BadInputError(f"--endpoint: {error}") from error


def _whole(order: RunConfig) -> RunConfig:
    """Return the configuration of a run that continues to its last problem, whatever became of its race."""
    return order if order.race_problems is None else order.model_copy(update={"race_problems": 0})


def _prepare_run(
    manifest: EvalRun,
    file: Path,
    settings: StartSettings,
    *,
    output: Path | None,
    resume: Path | None,
    race_problems: int | None = None,
) -> tuple[Workspace, CompletionSource]:
    """Check a run, and make its directory. Raises BadInputError."""
    spec = manifest.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    settings.options.check(spec)
    _check_sources(manifest, file)
    fitted, generation = _generation(manifest.spec, settings, str(file))
    now = datetime.now(UTC)
    directory = (resume or output or default_directory(manifest.metadata.name, now)).resolve()
    order = RunConfig(
        run=manifest.metadata.name,
        created=now,
        spec=fitted,
        base_dir=file.resolve().parent,
        output_dir=str(directory),
    )
    if race_problems is None and resume is not None:
        race_problems = _whole(order_in(directory)).race_problems
    if race_problems is not None:
        order = order.model_copy(update={"race_problems": race_problems})
    workspace = _open(directory, order, settings, resume=resume is not None)
    return workspace, generation


NAMED_DATASETS: Final = 5
"""Maximum number of datasets that a message names."""


def judge_files(
    problems: Sequence[str],
    responses: Sequence[str],
    *,
    output: Path,
    judge_mode: JudgeMode = "RunCode",
    comparator: str | None = None,
    time_limit: float | None = None,
    grader: Grader | None = None,
    exclude: Sequence[str] = (),
    samples: int | Literal["AsGiven"] | None = None,
    k: Sequence[int] = (),
    name: str = "judge",
    model: str | None = None,
    step: int | None = None,
    resume: bool = False,
    options: LocalOptions,
    session: RunSession | None = None,
) -> RunOutcome:
    """Judge answers that were made elsewhere.

    Args:
        problems, responses: files.
        output: directory of the results.
        judge_mode, comparator, time_limit: values of the flags.
        grader: scores the answers; None: their problems' tests decide.
        exclude: problems to leave out, as values of the flag: files, or ids with commas between them.
        samples: number of answers that each problem should have; None: as many as the problem with the most answers in
            its dataset has.
        k: values of k in pass@k; empty: 1, 10 and 100, as far as the answers per problem reach.
        name: name of the run in the report and in comparisons.
        model: model that made the answers, for the report and comparisons; None: unknown.
        step: training step of that model, for `evalrun history`; None: unknown.
        resume: continue in a directory that holds a part of the same judgement.
        options: the user's options for this machine.
        session: display of the run; None: the terminal.

    Raises:
        BadInputError: a file cannot be used, and the message names file and line; or flags exclude each other.
    """
    if judge_mode == "Submit":
        _check_submits(comparator, options)
    if grader is not None and (comparator is not None or judge_mode == "Submit"):
        raise BadInputError("--grader: its score decides: leave --comparator and --judge-mode away")
    known, places = read_problems(problems, grader)
    if len(places) > MAX_DATASETS:
        some = ", ".join([*places][:NAMED_DATASETS])
        raise BadInputError(
            f"--problems: the rows name {len(places)} datasets ({some}, ...), and a run takes {MAX_DATASETS}: judge "
            f"them in several runs, each with a file of up to {MAX_DATASETS} of them, or give rows that go together "
            "the same dataset (data_source in verl's rows)"
        )
    spec = judge_spec(places, model or EXTERNAL_MODEL, judge_mode, comparator, time_limit, grader)
    if step is not None:
        spec["lineage"] = {"step": step}
    excluded = read_exclusions(exclude, known)
    for dataset in spec["datasets"]:
        if dataset["name"] in excluded:
            dataset["excludeProblems"] = excluded[dataset["name"]]
    options.check(spec)
    # The file is read only for its errors: the aggregator reads it again, as it streams.
    load_responses(responses, known)
    directory = output.resolve()
    more = {name: files[1:] for name, files in places.items() if len(files) > 1}
    order = parse_run_config(
        {
            "run": name,
            "created": datetime.now(UTC),
            "spec": spec,
            **({"sources": more} if more else {}),
            "responses": [str(_resolve_source(path)) for path in responses],
            **({} if samples is None else {"answers_per_problem": samples}),
            **({"k": list(k)} if k else {}),
            "base_dir": Path.cwd(),
            "output_dir": str(directory),
        },
        "judge",
    )
    workspace = _open(directory, order, StartSettings.from_options(options), resume=resume)
    return run_to_end(workspace, options, None, session)


def _check_submits(comparator: str | None, options: LocalOptions) -> None:
    """Refuse options that do not work with `--judge-mode Submit`. Raises BadInputError."""
    if options.sandbox_fusion is None:
        raise BadInputError(
            "--judge-mode Submit: needs a SandboxFusion server, which has the tests: add --sandbox-fusion URL, or "
            "write --judge-mode RunCode"
        )
    if comparator is not None:
        raise BadInputError("--comparator: with --judge-mode Submit the SandboxFusion server compares: leave it away")


def rejudge_directory(
    directory: Path, *, output: Path | None, options: LocalOptions, session: RunSession | None = None
) -> RunOutcome:
    """Judge the completions of an earlier run again, into a directory of its own.

    Raises:
        BadInputError: no run lies in `directory`, or the new directory cannot be used.
    """
    source = Workspace(directory.resolve())
    order = order_in(source.directory)
    options.check(order.spec.to_wire())
    if not source.ledger.exists():
        raise BadInputError(f"{directory}: the run's ledger is gone: {source.ledger}")
    target = (output or directory.with_name(f"{directory.resolve().name}_rejudged")).resolve()
    changes = {"created": datetime.now(UTC), "rejudge": "rejudge", "output_dir": str(target)}
    order = order.model_copy(update=changes)
    workspace = _open(target, order, StartSettings.from_options(options), resume=Workspace(target).work_order.exists())
    # The directory is new, or an earlier try was stopped before it had the ledger.
    if not workspace.has_completions:
        _copy_ledger(source.ledger, workspace.ledger)
    return run_to_end(workspace, options, None, session)


def _check_sources(manifest: EvalRun, file: Path) -> None:
    """Raise BadInputError if a dataset's file is not there."""
    for index, dataset in enumerate(manifest.spec.datasets):
        grader = None if dataset.grader is None else dataset.grader.path
        for field, place in (
            ("source", dataset.source), ("promptTemplate", dataset.prompt_template), ("grader.path", grader),
        ):  # fmt: skip
            if place is not None and place.startswith(VOLUME):
                raise BadInputError(
                    f"{file}: spec.datasets[{index}].{field}: {place} is in a volume of a cluster: write the path or "
                    "URL of a file for a run on this machine"
                )
            try:
                for part in list_files(Source(place or dataset.source, file.resolve().parent)):
                    part.check_readable()
            except BadInputError as error:
                raise BadInputError(f"{file}: spec.datasets[{index}].{field}: {error}") from error


def _open(directory: Path, order: RunConfig, settings: StartSettings, *, resume: bool) -> Workspace:
    workspace = reopen(directory, order) if resume else create(directory, order)
    settings.write(directory)
    return workspace


def _generation(spec: EvalRunSpec, settings: StartSettings, file: str) -> tuple[EvalRunSpec, CompletionSource]:
    """Return the spec for this machine and the source of completions. Raises BadInputError."""
    endpoints, gpu_options = settings.endpoints, settings.gpu_options
    given = [flag for flag, value in gpu_options.flags.items() if value is not None]
    if given and (endpoints or spec.rollout is None):
        why = "--endpoint names servers that run already" if endpoints else f"{file} has no spec.rollout"
        raise BadInputError(f"{', '.join(given)}: only for replicas that are started here, and {why}: leave them away")
    if not endpoints and spec.rollout is not None:
        replicas = prepare_replicas(spec, gpu_options, file)
        spec = replicas.spec
        source = CompletionSource(
            [],
            spec.model.evaluated,
            spec.model.path,
            request_seconds=settings.request_seconds,
            host_flags=replicas.flags,
        )
        return spec, source
    own = spec.endpoints or []
    models = {endpoint.model or spec.model.path for endpoint in own} or {spec.model.path}
    if len(models) > 1:
        raise BadInputError(f"{file}: spec.endpoints: one run asks for one model, here are {', '.join(sorted(models))}")
    named = list(endpoints) or [endpoint.url for endpoint in own]
    builtin = [url for url in named if url.startswith(BUILTIN)]
    for url in endpoints:
        check_endpoint(url)
    for url in () if endpoints else named:
        base_url(url)
    recorded = ("--problems", builtin[0], "--responses", builtin[0]) if builtin else ()
    source = CompletionSource(
        endpoints=[url for url in named if not url.startswith(BUILTIN)],
        model=models.pop(),
        tokenizer=spec.model.path,
        recorded=recorded,
        concurrency={endpoint.url: endpoint.max_concurrent_requests for endpoint in own},
        request_seconds=settings.request_seconds,
    )
    return spec, source


def read_problems(sources: Sequence[str], grader: Grader | None = None) -> tuple[list[Problem], dict[str, list[str]]]:
    """Read each file once. Return all problems, and the files of each dataset in order."""
    graded = None
    if grader is not None:
        asked = Dataset.model_validate({"name": "graded", "source": "builtin:demo", "grader": grader})
        found = read_dataset_grader(asked, Path.cwd())
        graded = None if found is None else found.decides
    each = [(source, load_problem_files([source], graded=graded)) for source in dict.fromkeys(sources)]
    places: dict[str, list[str]] = {}
    for source, problems in each:
        for name in dict.fromkeys(problem.dataset for problem in problems):
            places.setdefault(name, []).append(str(_resolve_source(source)))
    return list(merge_sources((f"--problems {source}", problems) for source, problems in each)), places


def judge_spec(
    places: Mapping[str, Sequence[str]],
    model: str,
    judge_mode: JudgeMode,
    comparator: str | None,
    time_limit: float | None,
    grader: Grader | None = None,
) -> dict[str, Any]:
    """Return the spec of an EvalRun with these files. Nothing is generated, so the spec names no server.

    A dataset has a single source in the spec; its other files are named in the run configuration.
    """
    settings: dict[str, Any] = {} if judge_mode == "RunCode" else {"judgeMode": judge_mode}
    if comparator is not None:
        settings["comparator"] = {"name": comparator}
    if time_limit is not None:
        settings["limits"] = {"timeMilliseconds": round(1000 * time_limit)}
    if grader is not None:
        settings["grader"] = grader.to_wire()
    return {
        "model": {"path": model},
        "datasets": [{"name": name, "source": places[name][0], **settings} for name in places],
    }


def _resolve_source(source: str) -> str | Path:
    """Return a path that is valid from any directory. URLs stay unchanged."""
    return source if "://" in source or source.startswith(BUILTIN) else Path(source).resolve()


def _copy_ledger(source: Path, target: Path) -> None:
    """Copy a ledger, whole or not at all. Raises BadInputError."""
    partial = target.with_name(f".{target.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        read_only = f"{source.as_uri()}?mode=ro"
        with closing(sqlite3.connect(read_only, uri=True)) as old, closing(sqlite3.connect(partial)) as new:
            # A copy of the file alone would miss what still lies in the write-ahead log.
            old.backup(new)
        # These files belong to an empty ledger that was there.
        for name in ("-wal", "-shm"):
            target.with_name(target.name + name).unlink(missing_ok=True)
        partial.replace(target)
    except sqlite3.DatabaseError as error:
        raise BadInputError(f"ledger {source}: cannot be copied to {target}: {error}") from error
