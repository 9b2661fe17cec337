"""What a command asks for, as a work order: checks what the user gave before anything is started or written."""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from evalrun_cli.local_run import Generation, LocalOptions, run_to_end
from evalrun_cli.run_gate import check_baseline
from evalrun_cli.workspace import Workspace, create, default_directory, read_work_order, reopen
from evalrun_data import demo
from evalrun_data.readers import load_problem_files, merged
from evalrun_data.records import Problem
from evalrun_data.responses import load_responses
from evalrun_generator.endpoints import base_url
from evalrun_operator.api.manifest import load_manifest
from evalrun_operator.api.v1alpha1 import EvalRun
from evalrun_runtime.exits import BadInputError, ExitCode

JudgeMode = Literal["RunCode", "Submit"]
BUILTIN = "builtin:"
EXTERNAL_MODEL = "answers-made-elsewhere"


def run_file(
    file: Path, *, output: Path | None, endpoints: Sequence[str], resume: Path | None, options: LocalOptions
) -> ExitCode:
    """Run the EvalRun of a file on this machine.

    Raises:
        BadInputError: the file, a flag, a dataset or an endpoint cannot be used.
    """
    if output is not None and resume is not None:
        raise BadInputError("--resume names the folder already: leave --output away")
    manifest = load_manifest(file, place="machine")
    if manifest.spec.gate is not None:
        check_baseline(manifest.spec.gate, file)
    spec = manifest.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    options.check(spec)
    generation = _generation(manifest, endpoints, file)
    now = datetime.now(UTC)
    directory = (resume or output or default_directory(manifest.metadata.name, now)).resolve()
    order = {
        "schema": 1,
        "run": manifest.metadata.name,
        "created": now.isoformat(),
        "spec": spec,
        "base_dir": str(file.resolve().parent),
        "output_dir": str(directory),
    }
    workspace = _open(directory, order, resume=resume is not None)
    again = f"evalrun run {file} --local --resume {_shown(directory)}"
    again += "".join(f" --endpoint {endpoint}" for endpoint in endpoints) + options.resumed_with
    return run_to_end(workspace, options, generation, again)


def judge_files(
    problems: Sequence[str],
    responses: Sequence[str],
    *,
    output: Path,
    judge_mode: JudgeMode,
    comparator: str | None,
    time_limit: float | None,
    resume: bool,
    options: LocalOptions,
) -> ExitCode:
    """Judge answers that were made elsewhere.

    Raises:
        BadInputError: a file cannot be used, and the message names file and line; or flags do not go together.
    """
    if judge_mode == "Submit":
        _check_submits(comparator, options)
    known, places = _read_problems(problems)
    spec = _judge_spec(places, judge_mode, comparator, time_limit)
    options.check(spec)
    load_responses(responses, known)  # for its errors alone: the aggregator reads the files again, as it streams
    directory = output.resolve()
    more = {name: files[1:] for name, files in places.items() if len(files) > 1}
    order = {
        "schema": 1,
        "run": "judge",
        "created": datetime.now(UTC).isoformat(),
        "spec": spec,
        **({"sources": more} if more else {}),
        "responses": [str(_located(path)) for path in responses],
        "base_dir": str(Path.cwd()),
        "output_dir": str(directory),
    }
    workspace = _open(directory, order, resume=resume)
    return run_to_end(workspace, options, None, "the same command with --resume")


def _check_submits(comparator: str | None, options: LocalOptions) -> None:
    """Refuse what does not go with `--judge-mode Submit`. Raises BadInputError."""
    if options.sandbox_fusion is None:
        raise BadInputError(
            "--judge-mode Submit: needs a SandboxFusion server, which has the tests: add --sandbox-fusion URL, or "
            "write --judge-mode RunCode"
        )
    if comparator is not None:
        raise BadInputError("--comparator: with --judge-mode Submit the SandboxFusion server compares: leave it away")


def rejudge_directory(directory: Path, *, output: Path | None, options: LocalOptions) -> ExitCode:
    """Judge the completions of an earlier run again, into a folder of its own.

    Raises:
        BadInputError: no run lies in `directory`, or the new folder cannot be used.
    """
    source = Workspace(directory.resolve())
    order = dict(read_work_order(source.directory))
    options.check(order["spec"])
    if not source.ledger.exists():
        raise BadInputError(f"{directory}: the run's ledger is gone: {source.ledger}")
    target = (output or directory.with_name(f"{directory.resolve().name}_rejudged")).resolve()
    order |= {"created": datetime.now(UTC).isoformat(), "rejudge": "rejudge", "output_dir": str(target)}
    if (target / "work_order.json").exists():
        workspace = reopen(target, order)
    else:
        workspace = create(target, order)
        _copy_ledger(source.ledger, workspace.ledger)
    return run_to_end(
        workspace, options, None, f"evalrun rejudge {directory} --output {_shown(target)}{options.resumed_with}"
    )


def _open(directory: Path, order: dict[str, Any], *, resume: bool) -> Workspace:
    return reopen(directory, order) if resume else create(directory, order)


def _generation(manifest: EvalRun, endpoints: Sequence[str], file: Path) -> Generation:
    spec = manifest.spec
    if not endpoints and spec.rollout is not None:
        raise BadInputError(
            f"{file}: spec.rollout: replicas need a cluster with GPUs: name a server of the model with --endpoint URL"
        )
    own = spec.endpoints or []
    models = {endpoint.model or spec.model.path for endpoint in own} or {spec.model.path}
    if len(models) > 1:
        raise BadInputError(f"{file}: spec.endpoints: one run asks for one model, here are {', '.join(sorted(models))}")
    named = list(endpoints) or [endpoint.url for endpoint in own]
    builtin = [url for url in named if url.startswith(BUILTIN)]
    for url in named:
        check = demo.check_name if url in builtin else base_url
        check(url)
    recorded = ("--problems", builtin[0], "--responses", builtin[0]) if builtin else ()
    return Generation(
        endpoints=[url for url in named if not url.startswith(BUILTIN)],
        model=models.pop(),
        tokenizer=spec.model.path,
        recorded=recorded,
    )


def _read_problems(sources: Sequence[str]) -> tuple[list[Problem], dict[str, list[str]]]:
    """Read each file once; gives all problems, and the files that each dataset stands in."""
    each = [(source, load_problem_files([source])) for source in dict.fromkeys(sources)]
    places: dict[str, list[str]] = {}
    for source, problems in each:
        for name in {problem.dataset for problem in problems}:
            places.setdefault(name, []).append(str(_located(source)))
    return list(merged((f"--problems {source}", problems) for source, problems in each)), places


def _judge_spec(
    places: Mapping[str, Sequence[str]], judge_mode: JudgeMode, comparator: str | None, time_limit: float | None
) -> dict[str, Any]:
    """Give the spec that an EvalRun with these files would have; nothing is generated, so it names no server.

    A dataset has one source there; its other files stand in the work order.
    """
    settings: dict[str, Any] = {} if judge_mode == "RunCode" else {"judgeMode": judge_mode}
    if comparator is not None:
        settings["comparator"] = {"name": comparator}
    if time_limit is not None:
        settings["limits"] = {"timeSeconds": f"{time_limit:g}"}
    return {
        "model": {"path": EXTERNAL_MODEL},
        "datasets": [{"name": name, "source": places[name][0], **settings} for name in sorted(places)],
    }


def _located(source: str) -> str | Path:
    """Give a path as it is from anywhere; a URL stays as it is."""
    return source if "://" in source or source.startswith(BUILTIN) else Path(source).resolve()


def _shown(directory: Path) -> Path:
    """Give a path as short as it can be typed here."""
    return directory.relative_to(Path.cwd()) if directory.is_relative_to(Path.cwd()) else directory


def _copy_ledger(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)  # a copy of the file alone would miss what still lies in the write-ahead log
