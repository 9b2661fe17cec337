"""Signed statements, whoever signed: a key (`envelope`), or an identity (`keyless`, which needs an extra). Pure."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

from evalrun_attest.envelope import Envelope
from evalrun_attest.keys import SigningKey
from evalrun_runtime.distribution import describe_install
from evalrun_runtime.exits import BadInputError

if TYPE_CHECKING:
    from evalrun_attest.keyless import KeylessEnvelope, KeylessSigner

SignedStatement: TypeAlias = "Envelope | KeylessEnvelope"
"""A statement with the signature of somebody, who may be anybody."""
Signer: TypeAlias = "SigningKey | KeylessSigner"


class MissingExtraError(BadInputError):
    """The package that signs and verifies by identities is not installed."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A person or a workflow, by the word of the service that knows it."""

    name: str
    """An e-mail address, or the URL of a workflow."""
    issuer: str
    """URL of the OpenID Connect provider."""

    def __str__(self) -> str:
        """Return it as messages show it."""
        return f"{self.name} ({self.issuer})"


def parse_signed(content: bytes) -> SignedStatement:
    """Parse what `to_bytes` of a signed statement wrote.

    Raises:
        EnvelopeError: the content differs, however slightly, from every output of `to_bytes`.
        MissingExtraError: an identity signed the statement, and the extra for identities is not installed.
    """
    if not _is_keyless(content):
        return Envelope.parse(content)
    check_keyless_extra()
    from evalrun_attest.keyless import KeylessEnvelope

    return KeylessEnvelope.parse(content)


def sign_statement(statement: dict[str, Any], signer: Signer) -> SignedStatement:
    """Return a signed statement. Raises BadInputError if an identity cannot sign it now."""
    return Envelope.sign(statement, signer) if isinstance(signer, SigningKey) else signer.sign(statement)


def check_keyless_extra(find: Callable[[str], object] = find_spec) -> None:
    """Raise MissingExtraError if the package that signs and verifies by identities is not installed."""
    if find("sigstore") is None:
        raise MissingExtraError(f"signatures without a key need the extra sigstore: {describe_install('sigstore')}")


def _is_keyless(content: bytes) -> bool:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "mediaType" in document
