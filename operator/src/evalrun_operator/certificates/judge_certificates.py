"""Certificates of the chart's judge: contents and renewal of its Secrets, and the certificate of each run. Pure."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from evalrun_api import names
from evalrun_operator.certificates.issuing import Authority, Certificate, Usage, compute_remaining_validity
from evalrun_operator.settings import SharedJudge

LIFETIME = timedelta(days=365)
RENEWED_BEFORE = timedelta(days=120)
"""A certificate is renewed this long before it expires. During this time copies of the callers' Secret in other
namespaces can be replaced."""
AUTHORITY_PERIOD = timedelta(days=1825)
"""Time after which the authority gets another certificate of the same key. Each certificate is valid for twice as long,
so that a run that begins with it may last for five years."""


def make_authority(judge: SharedJudge, seed: str) -> Authority:
    """Return the authority of the chart's judge."""
    return Authority(f"evalrun {names.service_host(judge.gateway, judge.namespace)}", seed)


def list_secret_usages(judge: SharedJudge) -> dict[str, Usage]:
    """Return the usage of the certificate in each Secret. A sandbox gets no client certificate: programs run near
    it."""
    return {
        judge.gateway_secret: Usage([names.service_host(judge.gateway, judge.namespace)]),
        judge.sandbox_secret: Usage([names.service_host(judge.sandbox, judge.namespace)], calls=False),
        judge.caller_secret: Usage(),
    }


def renew_secret(
    held: Mapping[str, str], part: str, usage: Usage, authority: Authority, now: datetime, seed: str
) -> dict[str, str] | None:
    """Return the new contents of a Secret; None while its present contents are valid.

    Args:
        held: the Secret's contents, by file.
        part: the certificate's name.
        usage: purpose of the certificate.
        authority: the signer.
        now: the time.
        seed: random; a new key is derived from it.
    """
    own = _make_authority_certificate(authority, now)
    chain, key, trusted = (held.get(file, "") for file in names.TLS_FILES)
    left = compute_remaining_validity(Certificate(chain, key), own, usage, now)
    if trusted == own and left is not None and left > RENEWED_BEFORE:
        return None
    return _files(authority.sign(part, usage, now, seed, LIFETIME), own)


def certificate_for_run(authority: Authority, run: str, now: datetime, seed: str) -> dict[str, str]:
    """Return the files with which a run authenticates to the judge. They outlast any run, so they are never renewed."""
    return _files(authority.sign(run, Usage(), now, seed), _make_authority_certificate(authority, now))


def _make_authority_certificate(authority: Authority, now: datetime) -> str:
    """Return the authority's certificate of this period.

    It is the same for every operator, so it need not be stored.
    """
    first = datetime(1970, 1, 1, tzinfo=UTC)
    return authority.certificate(first + (now - first) // AUTHORITY_PERIOD * AUTHORITY_PERIOD)


def _files(certificate: Certificate, authority: str) -> dict[str, str]:
    return dict(zip(names.TLS_FILES, (certificate.chain, certificate.key, authority), strict=True))
