"""`evalrun publish`: shows, writes or sends a run's public results."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from evalrun_cli.printable_text import printable_lines
from evalrun_results.publications.every_eval_ever import Evaluator, eee_file
from evalrun_results.publications.figures import Publication, UnpublishableError, read_publication
from evalrun_results.publications.hub_results import HubTask, hub_files, model_card_table
from evalrun_results.stored_run import StoredRun
from evalrun_runtime.distribution import describe_install
from evalrun_runtime.exits import BadInputError, ExitCode

DATASTORE = "evaleval/EEE_datastore"
CARD = "model_card.md"
_MODEL_ID = re.compile(r"[\w.-]+/[\w.-]+")
_TASK = re.compile(r"(?P<name>[^=]+)=(?P<dataset>[\w.-]+/[\w.-]+):(?P<task>[\w.-]+)")


def publish_to_hub(
    place: str, model_id: str | None, hub_datasets: Sequence[str], output: Path | None, *, sends: bool
) -> ExitCode:
    """Show, write or send a run as the hub's results of a model. Raises BadInputError."""
    publication = _publication(place)
    try:
        files = hub_files(publication, dict(map(_task, hub_datasets)))
    except UnpublishableError as error:
        raise BadInputError(str(error)) from error
    if output is not None:
        # The table is for the authors to paste, because a model card is theirs.
        files[CARD] = model_card_table(publication)
    return _deliver(files, output, _model_id(publication, model_id) if sends else None, "model", publication)


def publish_to_every_eval_ever(
    place: str, model_id: str | None, organization: str, relationship: str, output: Path | None, *, sends: bool
) -> ExitCode:
    """Show, write or send a run as a record of Every Eval Ever. Raises BadInputError."""
    publication = _publication(place)
    path, content = eee_file(publication, _model_id(publication, model_id), Evaluator(organization, relationship))
    return _deliver({path: content}, output, DATASTORE if sends else None, "dataset", publication)


def _publication(place: str) -> Publication:
    try:
        return read_publication(StoredRun.open(place))
    except UnpublishableError as error:
        raise BadInputError(f"{place}: {error}") from error


def _model_id(publication: Publication, given: str | None) -> str:
    found = given or publication.model
    if not _MODEL_ID.fullmatch(found):
        raise BadInputError(f"the run's model is {found}: name it as the public knows it: --model-id DEVELOPER/MODEL")
    return found


def _task(written: str) -> tuple[str, HubTask]:
    match = _TASK.fullmatch(written)
    if match is None:
        raise BadInputError(f"--hub-dataset {written}: write NAME=ORGANIZATION/DATASET:TASK")
    return match["name"], HubTask(match["dataset"], match["task"])


def _deliver(
    files: Mapping[str, str], output: Path | None, repository: str | None, kind: str, publication: Publication
) -> ExitCode:
    if repository is not None:
        click.echo(_open_pull_request(files, repository, kind, publication))
        return ExitCode.SUCCEEDED
    for path, content in files.items():
        if output is None:
            click.echo(f"# {path}\n{printable_lines(content)}")
            continue
        try:
            (output / path).parent.mkdir(parents=True, exist_ok=True)
            (output / path).write_text(content, encoding="utf-8")
        except OSError as error:
            raise BadInputError(f"--output {output}: {error.strerror}") from error
        click.echo(str(output / path))
    return ExitCode.SUCCEEDED


def _open_pull_request(files: Mapping[str, str], repository: str, kind: str, publication: Publication) -> str:
    """Return the address of a pull request that adds the files."""
    try:
        import httpx2
        from huggingface_hub import CommitOperationAdd, HfApi
    except ImportError as error:
        raise BadInputError(f"--send needs the extra data: {describe_install('data')}") from error
    operations = [CommitOperationAdd(path, content.encode()) for path, content in files.items()]
    message = f"Add the results of {publication.run} by evalrun {publication.evalrun}"
    try:
        done = HfApi().create_commit(
            repository, operations, commit_message=message, repo_type=kind, create_pr=True, token=None
        )
    except (httpx2.HTTPError, OSError, ValueError) as error:
        raise BadInputError(
            f"{repository}: {error}: is the hub reachable, and are you logged in (hf auth login, or HF_TOKEN)?"
        ) from error
    return str(done.pr_url)
