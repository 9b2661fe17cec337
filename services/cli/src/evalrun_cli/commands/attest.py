"""The commands `attest` and `verify`."""

from collections.abc import Sequence
from pathlib import Path

import click

from evalrun_cli.commands.group import evalrun, judged_here
from evalrun_cli.local.options import LocalOptions
from evalrun_runtime.exits import ExitCode

_PLACE = click.Path(path_type=Path)
_VERIFY_CODES = """\b
Exit codes:
  0 verified   2 bad input   4 something differs   5 cannot tell: nothing differs, and something could not be checked"""


@evalrun.command()
@click.argument("run", metavar="RUN", type=_PLACE)
@click.option(
    "--key",
    required=True,
    type=_PLACE,
    help="PEM file of an Ed25519 key, as `openssl genpkey -algorithm ed25519 -out key.pem` makes it.",
)
@click.option("--output", type=_PLACE, help="The bundle, or with --revoke the file that gets another line.")
@click.option(
    "--without-tests",
    is_flag=True,
    help="Leave tests and what quotes them out of the bundle. It commits to them with salts, which go to a file that "
    "you keep: with it others can check later that these were the tests.",
)
@click.option("--revoke", "reason", metavar="REASON", help="Take the attestation of RUN, a folder or a bundle, back.")
def attest(run: Path, key: Path, output: Path | None, without_tests: bool, reason: str | None) -> ExitCode:
    """Sign the outputs of the run in folder RUN, so that anybody can check them.

    Writes attestation.json into RUN, and a bundle beside it: one file with the signed statement (every file by its
    digest, every row by a Merkle root, the figures), the answers, the verdicts and the problems. `evalrun verify`
    checks it on any machine without a network.
    """
    from evalrun_cli.attestation.requirement import check_extra

    check_extra()
    from evalrun_cli.attestation.signing import attest_run, revoke_attestation

    if reason is not None:
        return revoke_attestation(run, key, reason, output)
    return attest_run(run, key, output, hide_tests=without_tests)


@evalrun.command(epilog=_VERIFY_CODES)
@click.argument("place", metavar="BUNDLE_OR_DIR", type=_PLACE)
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="Answers to judge again, drawn by chance.",
)
@click.option("--all", "every", is_flag=True, help="Judge every answer again.")
@click.option("--seed", type=int, help="Draw the same answers as a run that printed this seed. Default: unpredictable.")
@click.option("--trust", multiple=True, type=_PLACE, help="PEM file of a public key that you trust; may be repeated.")
@click.option("--revocations", type=_PLACE, help="File of attestations that their signers took back.")
@click.option(
    "--openings", type=_PLACE, help="File that shows hidden tests: the one that attest --without-tests wrote."
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@judged_here
def verify(
    place: Path,
    sample: int,
    every: bool,
    seed: int | None,
    trust: Sequence[Path],
    revocations: Path | None,
    openings: Path | None,
    as_json: bool,
    options: LocalOptions,
) -> ExitCode:
    """Check a bundle, or the folder of an attested run, without believing its maker.

    Checks the signature, every digest and every row; computes metrics and intervals from the rows; judges drawn answers
    again in the sandbox of this machine and compares the verdicts. Says what it could not check.
    """
    import secrets

    from evalrun_cli.attestation.requirement import check_extra

    check_extra()

    from evalrun_cli.attestation.verification import VerifyOptions
    from evalrun_cli.attestation.verification import verify as check

    chosen = secrets.randbelow(1 << 32) if seed is None else seed
    asked = VerifyOptions(None if every else sample, chosen, trust, revocations, openings, as_json)
    return check(place, asked, options)
