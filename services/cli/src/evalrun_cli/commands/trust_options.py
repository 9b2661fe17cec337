"""The flags that say whom to trust."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from evalrun_cli.attestation.trust_files import TrustFiles
from evalrun_cli.commands.group import EXISTING_FILE

Command = Callable[..., int]


def add_trust_flags(command: Command) -> Command:
    """Add the flags that say which signatures count; the command receives them as `trust`."""

    @click.option(
        "--trust",
        "keys",
        multiple=True,
        type=EXISTING_FILE,
        help="PEM file of a public key that you trust; may be repeated.",
    )
    @click.option("--identity", metavar="NAME", help="E-mail address or workflow that you trust, with --issuer.")
    @click.option("--issuer", metavar="URL", help="OpenID Connect provider that knows --identity.")
    @click.option(
        "--trust-config",
        type=EXISTING_FILE,
        help="ClientTrustConfig of a private instance of Sigstore. Default: the public one, as it is stored here.",
    )
    @click.option("--revocations", type=EXISTING_FILE, help="File of attestations that their signers took back.")
    @wraps(command)
    def with_options(
        *,
        keys: tuple[Path, ...],
        identity: str | None,
        issuer: str | None,
        trust_config: Path | None,
        revocations: Path | None,
        **others: Any,  # noqa: ANN401 - whatever the command's own flags are
    ) -> int:
        return command(trust=TrustFiles(keys, identity, issuer, trust_config, revocations), **others)

    return with_options
