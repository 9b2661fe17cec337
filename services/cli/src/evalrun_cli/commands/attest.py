"""The commands `attest` and `verify`."""

from pathlib import Path

import click

from evalrun_cli.attestation.trust_files import TrustFiles
from evalrun_cli.commands.group import add_judging_flags, evalrun
from evalrun_cli.commands.trust_options import add_trust_flags
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
    type=_PLACE,
    help="PEM file of an Ed25519 key, as `openssl genpkey -algorithm ed25519 -out key.pem` makes it.",
)
@click.option(
    "--sigstore",
    is_flag=True,
    help="Sign without a key, by the identity of this CI job. Publishes that identity in a public log for good.",
)
@click.option(
    "--identity-token-file",
    type=_PLACE,
    help="With --sigstore: file with an OpenID Connect token for the audience sigstore, in place of the CI job's.",
)
@click.option("--interactive", is_flag=True, help="With --sigstore: sign in with a browser.")
@click.option(
    "--trust-config",
    type=_PLACE,
    help="With --sigstore: ClientTrustConfig of a private instance. Default: Sigstore's public one.",
)
@click.option("--output", type=_PLACE, help="The bundle, or with --revoke the file that gets another line.")
@click.option(
    "--without-tests",
    is_flag=True,
    help="Leave tests and what quotes them out of the bundle. It commits to them with salts, which go to a file that "
    "you keep: with it others can check later that these were the tests.",
)
@click.option("--revoke", "reason", metavar="REASON", help="Take the attestation of RUN, a folder or a bundle, back.")
def attest(
    run: Path,
    key: Path | None,
    sigstore: bool,
    identity_token_file: Path | None,
    interactive: bool,
    trust_config: Path | None,
    output: Path | None,
    without_tests: bool,
    reason: str | None,
) -> ExitCode:
    """Sign the outputs of the run in folder RUN, so that anybody can check them.

    Writes attestation.json into RUN, and a bundle beside it: one file with the signed statement (every file by its
    digest, every row by a Merkle root, the figures), the answers, the verdicts and the problems. `evalrun verify`
    checks it on any machine without a network.
    """
    from evalrun_cli.attestation.requirement import check_extra

    check_extra()
    from evalrun_cli.attestation.signers import SignerOptions
    from evalrun_cli.attestation.signing import attest_run, revoke_attestation

    options = SignerOptions(key, sigstore, identity_token_file, interactive, trust_config)
    if reason is not None:
        return revoke_attestation(run, options, reason, output)
    return attest_run(run, options, output, hide_tests=without_tests)


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
@add_trust_flags
@click.option(
    "--openings", type=_PLACE, help="File that shows hidden tests: the one that attest --without-tests wrote."
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@add_judging_flags
def verify(
    place: Path,
    sample: int,
    every: bool,
    seed: int | None,
    trust: TrustFiles,
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
    asked = VerifyOptions(None if every else sample, chosen, trust, openings, as_json)
    return check(place, asked, options)
