"""Attestations that other commands require: the signer of a run, and baselines that match their signatures."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import fsspec
from fsspec.implementations.local import LocalFileSystem

from evalrun_attest.run_files import ATTESTATION
from evalrun_cli.attestation.scratch import scratch_folder
from evalrun_cli.comparisons.gate_policy import read_policy
from evalrun_data.store_problems import named_read_errors
from evalrun_results.comparisons.run_gate import baseline_place
from evalrun_runtime.distribution import describe_install
from evalrun_runtime.exits import BadInputError

if TYPE_CHECKING:
    from evalrun_attest.keys import PublicKey
    from evalrun_attest.revocations import Revocation

ADVICE: Final = "sign it with evalrun attest, or name another baseline"


def check_extra() -> None:
    """Raise BadInputError if the packages for signing are not installed."""
    if not _has_extra():
        raise BadInputError(f"signatures need the extra attest: {describe_install('attest')}")


def _has_extra() -> bool:
    return find_spec("cryptography") is not None


def signer_of(place: str) -> str:
    """Return the id of the key that signed the summary of a run; empty if nobody did, or the extra is missing.

    Whether to trust that key is not asked here.
    """
    if not _has_extra():
        return ""
    import hashlib

    from evalrun_attest.envelope import Envelope, EnvelopeError
    from evalrun_attest.statement import StatementError, parse_statement

    with named_read_errors(place):
        files, path = fsspec.core.url_to_fs(place)
        if not files.exists(f"{path.rstrip('/')}/{ATTESTATION}"):
            return ""
        content = files.cat_file(f"{path.rstrip('/')}/{ATTESTATION}")
        summary = files.cat_file(f"{path.rstrip('/')}/summary.json")
    try:
        envelope = Envelope.parse(content)
        signed = parse_statement(envelope.statement()).files.get("summary.json") if envelope.is_signed else None
    except (EnvelopeError, StatementError):
        return ""
    is_signed = signed is not None and signed.sha256 == hashlib.sha256(summary).hexdigest()
    return envelope.public_key.id if is_signed else ""


def check_baselines(policy: Path, trust: Sequence[Path], revocations: Path | None) -> None:
    """Refuse a policy with a baseline that no trusted signer has signed, or that differs from what was signed.

    Raises:
        BadInputError: a baseline is refused, or a file cannot be used; the message names it.
    """
    check_extra()
    if not trust:
        raise BadInputError("--require-attested: name the keys that you trust: --trust FILE")
    keys, revoked = read_trust(trust, revocations)
    for baseline in dict.fromkeys(gate.baseline for gate in read_policy(policy)):
        if baseline is not None:
            check_attested(baseline_place(baseline, policy.resolve().parent), keys, revoked)


def read_trust(trust: Sequence[Path], revocations: Path | None) -> tuple[Sequence["PublicKey"], Sequence["Revocation"]]:
    """Read the keys that the user trusts, and what their holders took back.

    Raises:
        BadInputError: a file cannot be used, or the packages for signing are not installed.
    """
    check_extra()
    from evalrun_attest.keys import PublicKey
    from evalrun_attest.revocations import parse_revocations

    lines = [] if revocations is None else revocations.read_text(encoding="utf-8").splitlines()
    return [PublicKey.read(path) for path in trust], parse_revocations(lines, str(revocations))


def check_attested(place: str, trusted: Sequence["PublicKey"], revocations: Sequence["Revocation"]) -> None:
    """Raise BadInputError unless a run's outputs are as a trusted key has signed them."""
    if wrong := why_not_attested(place, trusted, revocations):
        raise BadInputError(f"--require-attested: {place}: {wrong}: {ADVICE}")


def why_not_attested(place: str, trusted: Sequence["PublicKey"], revocations: Sequence["Revocation"]) -> str:
    """Return why a run's outputs are not as a trusted key has signed them; empty if they are."""
    from evalrun_attest.checks import Outcome, check_signer, open_folder

    with _on_this_machine(place) as folder:
        if not (folder / ATTESTATION).exists():
            return "it is not attested"
        run, findings = open_folder(folder)
    if run is not None:
        findings = [*check_signer(run.envelope, trusted, revocations), *findings]
    return next((finding.text for finding in findings if finding.outcome is not Outcome.MATCHES), "")


@contextmanager
def _on_this_machine(place: str) -> Iterator[Path]:
    """Give the folder of a run's outputs; those of a store are copied."""
    with named_read_errors(place):
        files, path = fsspec.core.url_to_fs(place)
    if isinstance(files, LocalFileSystem):
        yield Path(path)
        return
    with scratch_folder() as scratch:
        with named_read_errors(place):
            for name in files.find(path):
                target = scratch / name.removeprefix(path.rstrip("/") + "/")
                target.parent.mkdir(parents=True, exist_ok=True)
                files.get_file(name, str(target))
        yield scratch
