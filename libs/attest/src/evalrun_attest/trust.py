"""Decides whether a verifier trusts a signature. Pure."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from evalrun_attest.checks import Finding, Outcome, differs, matches, unknown
from evalrun_attest.envelope import Envelope
from evalrun_attest.keys import PublicKey
from evalrun_attest.revocations import Revocation, find_revocations
from evalrun_attest.signatures import Identity, SignedStatement

if TYPE_CHECKING:
    from evalrun_attest.keyless import KeylessEnvelope, TrustRoot


@dataclass(frozen=True)
class Trust:
    """Keys and an identity that a verifier trusts, and revocations of attestations."""

    keys: Sequence[PublicKey] = ()
    identity: Identity | None = None
    root: "TrustRoot | None" = None
    """Authorities that say who an identity is; None: those of the public instance, as they are stored here."""
    revocations: Sequence[Revocation] = ()

    @property
    def is_given(self) -> bool:
        """Whether the verifier named a key or an identity."""
        return bool(self.keys) or self.identity is not None

    @cached_property
    def authorities(self) -> "TrustRoot":
        """The trust root for identities. Raises BadInputError."""
        from evalrun_attest.keyless import TrustRoot

        return self.root or TrustRoot.read_stored()


def check_signer(signed: SignedStatement, trust: Trust) -> list[Finding]:
    """Check who signed, and whether the signer took it back."""
    if not isinstance(signed, Envelope) and trust.is_given and trust.identity is None:
        # Who trusts keys alone needs no vouching by authorities.
        return [compare_identity(signed.signer, trust)]
    found = _check_key(signed.signer, trust) if isinstance(signed, Envelope) else _check_identity(signed, trust)
    for revocation in find_revocations(trust.revocations, signed):
        said = f"at {revocation.revoked_at}: {revocation.reason}"
        if why := why_not_vouched(revocation.signed, trust):
            found.append(unknown(f"revoked in its signer's name {said}; whether by its signer is not known: {why}"))
        else:
            found.append(differs(f"revoked by its signer {said}"))
    return found


def why_not_vouched(signed: SignedStatement, trust: Trust) -> str:
    """Return why nobody vouches for the signer's identity; empty for a key, which is its own proof."""
    if isinstance(signed, Envelope):
        return ""
    from evalrun_attest.keyless import NotVouchedError

    try:
        trust.authorities.check(signed)
    except NotVouchedError as error:
        return str(error)
    return ""


def _check_key(key_id: str, trust: Trust) -> list[Finding]:
    if not trust.is_given:
        return [unknown(f"signed by the key {key_id}; nobody said whether to trust it (--trust FILE)")]
    if key_id in {key.id for key in trust.keys}:
        return [matches(f"signed by the trusted key {key_id}")]
    return [differs(f"signed by the key {key_id}, which is none of the trusted ones")]


def _check_identity(signed: "KeylessEnvelope", trust: Trust) -> list[Finding]:
    if why := why_not_vouched(signed, trust):
        return [differs(f"the signature names {signed.signer}: {why}")]
    noted = (
        f"not known without a network: whether the trust root of {trust.authorities.where} is still the current one, "
        "and revocations that --revocations does not list"
    )
    return [compare_identity(signed.signer, trust), Finding(Outcome.NOTED, noted)]


def compare_identity(signer: Identity, trust: Trust) -> Finding:
    """Compare the signer's identity with the trusted identity."""
    wanted = trust.identity
    if signer == wanted:
        return matches(f"signed by the trusted identity {signer}")
    if wanted is not None:
        parts = [("identity", signer.name, wanted.name), ("issuer", signer.issuer, wanted.issuer)]
        wrong = [f"the {part} is {found}, not {expected}" for part, found, expected in parts if found != expected]
        return differs(f"signed by another than the trusted identity: {'; '.join(wrong)}")
    to_write = f"--identity {shlex.quote(signer.name)} --issuer {shlex.quote(signer.issuer)}"
    if trust.is_given:
        return differs(f"the signature names {signer}, which is none of the trusted keys ({to_write} trusts it)")
    return unknown(f"signed by {signer}; nobody said whether to trust it ({to_write})")
