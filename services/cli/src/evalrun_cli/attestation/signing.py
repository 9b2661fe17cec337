"""`evalrun attest`: signs a run's outputs, and takes an attestation back."""

import secrets
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from evalrun_aggregator.finish.output_signature import collect_attested_problems
from evalrun_aggregator.start.datasets import load_datasets
from evalrun_attest.bundle import JudgedProblems, write_bundle
from evalrun_attest.checks import open_bundle, open_folder
from evalrun_attest.commitments import HiddenProblem, render_opening_line
from evalrun_attest.revocations import revoke, to_line
from evalrun_attest.run_files import RUN_INFO, read_document
from evalrun_attest.signatures import Identity
from evalrun_cli.attestation.scratch import scratch_folder
from evalrun_cli.attestation.signers import SignerOptions
from evalrun_cli.local.workspace import WORK_ORDER, order_in
from evalrun_results.metrics.run_options import parse_spec
from evalrun_runtime.exits import BadInputError, ExitCode


def attest_run(run: Path, options: SignerOptions, output: Path | None, *, hide_tests: bool) -> ExitCode:
    """Write a run's attestation and its bundle. Raises BadInputError."""
    signer = options.signer()
    folder = run.resolve()
    target = output or folder.with_name(f"{folder.name}.bundle.tar")
    try:
        written = write_bundle(
            folder, load_judged_problems(folder), signer, target, hide_tests=hide_tests, make_salt=secrets.token_bytes
        )
        if written.hidden:
            openings = target.with_name(f"{target.name}.openings.jsonl")
            _write_openings(openings, written.hidden)
            click.echo(f"keep {openings}: with it anybody can check later that these were the tests")
    except OSError as error:
        raise BadInputError(f"{error.filename}: cannot be written: {error.strerror}") from error
    signed_by = written.envelope.signer
    click.echo(f"signed by {signed_by}")
    click.echo(f"bundle: {target} ({target.stat().st_size:,} bytes)")
    click.echo(f"check it with: evalrun verify {shlex.quote(str(target))} {_trust_in(signed_by, options)}")
    return ExitCode.SUCCEEDED


def _trust_in(signer: str | Identity, options: SignerOptions) -> str:
    """Return the options of `verify` that trust a signer."""
    if not isinstance(signer, Identity):
        return "--trust KEY.pub"
    private = [] if options.trust_config is None else ["--trust-config", str(options.trust_config)]
    return shlex.join(["--identity", signer.name, "--issuer", signer.issuer, *private])


def load_judged_problems(folder: Path) -> dict[str, JudgedProblems]:
    """Return the problems of a run, from its own sources. Raises BadInputError."""
    # The directory was downloaded from a cluster or a bucket.
    if not (folder / WORK_ORDER).exists():
        spec = parse_spec(read_document(folder / RUN_INFO))
        return collect_attested_problems(load_datasets(spec, folder, {}), folder)
    order = order_in(folder)
    datasets = load_datasets(order.spec, order.base_dir, order.sources)
    return collect_attested_problems(datasets, order.base_dir)


def _write_openings(path: Path, hidden: Mapping[str, Sequence[HiddenProblem]]) -> None:
    path.touch(mode=0o600)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(render_opening_line(name, each) for name, problems in hidden.items() for each in problems)


def revoke_attestation(place: Path, options: SignerOptions, reason: str, output: Path | None) -> ExitCode:
    """Append the revocation of an attestation to a file of revocations. Raises BadInputError."""
    signer = options.signer()
    with scratch_folder() as scratch:
        opened, findings = open_folder(place) if place.is_dir() else open_bundle(place, scratch)
    if opened is None:
        raise BadInputError(f"{place}: {findings[-1].text}")
    line = to_line(revoke(opened.envelope, signer, reason, datetime.now(UTC).isoformat(timespec="seconds")))
    if output is None:
        click.echo(line, nl=False)
    else:
        with output.open("a", encoding="utf-8") as file:
            file.write(line)
    return ExitCode.SUCCEEDED
