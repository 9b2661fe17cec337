"""Attestations that other commands require: the signer of a run, and baselines that match their signatures."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import fsspec
from fsspec.implementations.local import LocalFileSystem

from evalrun_attest.run_files import ATTESTATION
from evalrun_cli.attestation.scratch import scratch_folder
from evalrun_cli.attestation.trust_files import TrustFiles
from evalrun_cli.comparisons.gate_policy import read_policy
from evalrun_data.store_problems import name_read_errors
from evalrun_results.comparisons.run_gate import baseline_place
from evalrun_runtime.distribution import describe_install
from evalrun_runtime.exits import BadInputError

if TYPE_CHECKING:
    from evalrun_attest.trust import Trust

ADVICE: Final = "sign it with evalrun attest, or name another baseline"


def check_extra() -> None:
    """Raise BadInputError if the packages for signing are not installed."""
    if not _has_extra():
        raise BadInputError(f"signatures need the extra attest: {describe_install('attest')}")


def _has_extra() -> bool:
    return find_spec("cryptography") is not None


def find_signer(place: str, trust: "Trust | None" = None) -> str:
    """Return the id of the key, or the identity, that signed the summary of a run; empty if it is not signed.

    Trust in the signer is not checked here, but an identity is shown only if the authorities of `trust` vouch for it;
    None: those of Sigstore's public instance. Empty, too, if an extra is missing.
    """
    if not _has_extra():
        return ""
    import hashlib

    from evalrun_attest.envelope import EnvelopeError
    from evalrun_attest.signatures import parse_signed
    from evalrun_attest.statement import StatementError, parse_statement
    from evalrun_attest.trust import Trust, why_not_vouched

    with name_read_errors(place):
        files, path = fsspec.core.url_to_fs(place)
        if not files.exists(f"{path.rstrip('/')}/{ATTESTATION}"):
            return ""
        content = files.cat_file(f"{path.rstrip('/')}/{ATTESTATION}")
        summary = files.cat_file(f"{path.rstrip('/')}/summary.json")
    try:
        envelope = parse_signed(content)
        signed = parse_statement(envelope.statement()).files.get("summary.json") if envelope.is_signed else None
        if signed is None or signed.sha256 != hashlib.sha256(summary).hexdigest():
            return ""
        return "" if why_not_vouched(envelope, trust or Trust()) else str(envelope.signer)
    except (EnvelopeError, StatementError, BadInputError):
        return ""


def check_baselines(policy: Path, files: TrustFiles) -> None:
    """Refuse a policy with a baseline that no trusted signer has signed, or that differs from the signed outputs.

    Raises:
        BadInputError: a baseline is refused, or a file cannot be used; the message names it.
    """
    trust = read_trust(files)
    if not trust.is_given:
        raise BadInputError(
            "--require-attested: name the keys that you trust (--trust FILE), or an identity (--identity NAME "
            "--issuer URL)"
        )
    for baseline in dict.fromkeys(gate.baseline for gate in read_policy(policy)):
        if baseline is not None:
            check_attested(baseline_place(baseline, policy.resolve().parent), trust)


def read_trust(files: TrustFiles) -> "Trust":
    """Read the signers that the user trusts, and the attestations that were revoked.

    Raises:
        BadInputError: an option cannot be used, or the packages for signing are not installed.
    """
    check_extra()
    from evalrun_attest.keys import PublicKey
    from evalrun_attest.revocations import parse_revocations
    from evalrun_attest.signatures import Identity, check_keyless_extra
    from evalrun_attest.trust import Trust

    if (files.identity is None) != (files.issuer is None):
        raise BadInputError(
            "--identity and --issuer: write both: another issuer may give the same name to somebody else"
        )
    identity = None if files.identity is None or files.issuer is None else Identity(files.identity, files.issuer)
    root = None
    if files.trust_config is not None:
        check_keyless_extra()
        from evalrun_attest.keyless import TrustRoot

        root = TrustRoot.read(files.trust_config)
    revoked = (
        [] if files.revocations is None else parse_revocations(read_lines(files.revocations), str(files.revocations))
    )
    return Trust([PublicKey.read(path) for path in files.keys], identity, root, revoked)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file. Raises BadInputError."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path}: cannot be read: {error}") from error


def check_attested(place: str, trust: "Trust") -> None:
    """Raise BadInputError unless a run's outputs are as a trusted signer has signed them."""
    if wrong := why_not_attested(place, trust):
        raise BadInputError(f"--require-attested: {place}: {wrong}: {ADVICE}")


def why_not_attested(place: str, trust: "Trust") -> str:
    """Return why a run's outputs are not as a trusted signer has signed them; empty if they are."""
    from evalrun_attest.checks import open_folder
    from evalrun_attest.trust import check_signer

    with _on_this_machine(place) as folder:
        if not (folder / ATTESTATION).exists():
            return "it is not attested"
        run, findings = open_folder(folder)
    if run is not None:
        findings = [*check_signer(run.envelope, trust), *findings]
    return next((finding.text for finding in findings if finding.outcome.is_problem), "")


@contextmanager
def _on_this_machine(place: str) -> Iterator[Path]:
    """Yield the directory of a run's outputs; outputs in a store are copied."""
    with name_read_errors(place):
        files, path = fsspec.core.url_to_fs(place)
    if isinstance(files, LocalFileSystem):
        yield Path(path)
        return
    with scratch_folder() as scratch:
        with name_read_errors(place):
            for name in files.find(path):
                target = scratch / name.removeprefix(path.rstrip("/") + "/")
                target.parent.mkdir(parents=True, exist_ok=True)
                files.get_file(name, str(target))
        yield scratch
