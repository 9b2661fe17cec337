"""Certificates of the chart's judge: issued once, renewed before they expire, and replaced with their authority."""

import logging
import ssl
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from builders.operator.stored_secrets import NAMESPACE, StoredSecrets
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from evalrun_api.v1alpha1 import JudgeReference
from evalrun_cluster.errors import RefusedError
from evalrun_operator.certificates.issuing import Certificate, Usage, compute_remaining_validity
from evalrun_operator.certificates.judge_certificates import (
    AUTHORITY_PERIOD,
    LIFETIME,
    RENEWED_BEFORE,
    certificate_for_run,
    list_secret_usages,
    make_authority,
)
from evalrun_operator.resources.plan import is_issued
from evalrun_operator.settings import SharedJudge
from evalrun_operator.shared_certificates import SharedCertificates

JUDGE = SharedJudge(
    namespace=NAMESPACE, gateway="judge", sandbox="sandbox", authority_secret="authority", gateway_secret="judge-tls",
    sandbox_secret="sandbox-tls", caller_secret="caller-tls",
)  # fmt: skip
NOW = datetime.now(UTC)
HOSTS = {"judge-tls": "judge.judging.svc", "sandbox-tls": "sandbox.judging.svc"}
Files = dict[str, str]


def handshake(server: Files, caller: Files, host: str, directory: Path) -> bool:
    """Return whether a caller and a server of these files accept each other, by OpenSSL."""
    contexts = []
    for number, (files, purpose) in enumerate(((server, ssl.Purpose.CLIENT_AUTH), (caller, ssl.Purpose.SERVER_AUTH))):
        for name, text in files.items():
            (directory / f"{number}-{name}").write_text(text)
        context = ssl.create_default_context(purpose, cafile=directory / f"{number}-ca.crt")
        context.load_cert_chain(directory / f"{number}-tls.crt", directory / f"{number}-tls.key")
        context.verify_mode = ssl.CERT_REQUIRED
        contexts.append(context)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        contexts[0].wrap_bio(there, back, server_side=True), contexts[1].wrap_bio(back, there, server_hostname=host)
    ]  # fmt: skip
    for _ in range(4):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return True


class Release:
    """An installed chart and its operator, at a time that tests set."""

    def __init__(self) -> None:
        self.api = StoredSecrets()
        self.now = NOW
        self._seeds = (f"seed {number}" for number in count())
        self._filler = SharedCertificates(self.api, JUDGE, lambda: self.now, lambda: next(self._seeds))
        self.api.add("authority", {"seed": "what nobody knows"})
        for name in list_secret_usages(JUDGE):
            self.api.add(name)

    async def fill(self) -> dict[str, Files]:
        await self._filler.fill()
        return {name: self.api.texts(name) for name in list_secret_usages(JUDGE)}


async def test_each_secret_gets_a_certificate_once_and_a_sandboxs_opens_nothing(tmp_path: Path) -> None:
    release = Release()
    held = await release.fill()
    for server, host in HOSTS.items():
        opened = {caller for caller, files in held.items() if handshake(held[server], files, host, tmp_path)}
        assert opened == {"judge-tls", "caller-tls"}
        assert not handshake(held[server], held["caller-tls"], "elsewhere.judging.svc", tmp_path)
    assert await release.fill() == held
    assert release.api.writes == 3


async def test_certificates_are_renewed_before_expiry_and_old_ones_still_connect(tmp_path: Path) -> None:
    release = Release()
    release.now = NOW - LIFETIME + RENEWED_BEFORE - timedelta(days=1)
    first = await release.fill()
    release.now = NOW - timedelta(days=2)
    await release.fill()
    assert release.api.writes == 3
    release.now = NOW
    second = await release.fill()
    assert release.api.writes == 6
    for name, files in first.items():
        assert {"tls.crt", "tls.key"} <= {file for file, text in files.items() if text != second[name][file]}
    assert handshake(second["judge-tls"], first["caller-tls"], HOSTS["judge-tls"], tmp_path)
    assert handshake(first["judge-tls"], second["caller-tls"], HOSTS["judge-tls"], tmp_path)


async def test_the_authoritys_own_certificate_is_renewed_and_runs_that_hold_the_first_go_on(tmp_path: Path) -> None:
    release = Release()
    first = await release.fill()
    authority = make_authority(JUDGE, "what nobody knows")
    run = certificate_for_run(authority, "run", NOW, "a seed")
    assert handshake(first["judge-tls"], run, HOSTS["judge-tls"], tmp_path)
    release.now = NOW + AUTHORITY_PERIOD
    later = await release.fill()
    assert later["judge-tls"]["ca.crt"] != first["judge-tls"]["ca.crt"] == run["ca.crt"]
    at = release.now + timedelta(days=1)
    for caller in (run, later["caller-tls"]):
        server = x509.load_pem_x509_certificate(later["judge-tls"]["tls.crt"].encode())
        store = Store([x509.load_pem_x509_certificate(caller["ca.crt"].encode())])
        name = x509.DNSName(HOSTS["judge-tls"])
        PolicyBuilder().store(store).time(at).build_server_verifier(name).verify(server, [])
        shown = Certificate(caller["tls.crt"], caller["tls.key"])
        left = compute_remaining_validity(shown, later["judge-tls"]["ca.crt"], Usage(), at)
        assert left is not None
        assert left > timedelta(0)


async def test_another_authority_replaces_all(tmp_path: Path) -> None:
    release = Release()
    first = await release.fill()
    release.api.add("authority", {"seed": "another"})
    second = await release.fill()
    assert handshake(second["judge-tls"], second["caller-tls"], HOSTS["judge-tls"], tmp_path)
    assert not handshake(second["judge-tls"], first["caller-tls"], HOSTS["judge-tls"], tmp_path)
    fingerprints = {make_authority(JUDGE, seed).fingerprint for seed in ("what nobody knows", "another")}
    assert len(fingerprints) == 2


@pytest.mark.parametrize("broken", [{"tls.crt": "no certificate"}, {"tls.key": "no key"}, {"ca.crt": ""}])
async def test_broken_certificate_secret_is_replaced(broken: Files) -> None:
    release = Release()
    held = await release.fill()
    release.api.add("sandbox-tls", {**held["sandbox-tls"], **broken})
    repaired = await release.fill()
    assert repaired["sandbox-tls"]["tls.crt"] != broken.get("tls.crt", held["sandbox-tls"]["tls.crt"])
    assert {**repaired, "sandbox-tls": {}} == {**held, "sandbox-tls": {}}


async def test_a_key_of_another_certificate_and_another_service_are_noticed() -> None:
    release = Release()
    held = await release.fill()
    release.api.add("judge-tls", {**held["judge-tls"], "tls.key": held["caller-tls"]["tls.key"]})
    release.api.add("sandbox-tls", held["judge-tls"])
    await release.fill()
    assert release.api.writes == 5


async def test_certificate_of_the_first_of_two_operators_is_kept() -> None:
    release = Release()
    release.api.other_writer = {"seed": "what nobody knows", "tls.crt": "theirs"}
    held = await release.fill()
    assert held["judge-tls"]["tls.crt"] == "theirs"


async def test_a_release_without_a_seed_is_waited_for_and_a_refusal_names_the_remedy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = Release()
    release.api.add("authority")
    assert await release.fill() == {name: {} for name in list_secret_usages(JUDGE)}
    release.api.refusal = RefusedError("reading Secret authority: forbidden")
    with caplog.at_level(logging.WARNING):
        await release.fill()
    (said,) = caplog.messages
    assert "judging/authority" in said
    assert "forbidden. The operator's account needs get and patch" in said
    assert "mode: disabled" in said


@pytest.mark.parametrize(
    ("reference", "namespace", "expected"),
    [
        (JudgeReference(name="judge", namespace=NAMESPACE), "evals", True),
        (JudgeReference(name="judge"), NAMESPACE, True),
        (JudgeReference(name="judge"), "evals", False),
        (JudgeReference(name="other", namespace=NAMESPACE), "evals", False),
        (JudgeReference.model_validate({"name": "judge", "tlsSecretRef": {"name": "mine"}}), NAMESPACE, False),
        (None, NAMESPACE, False),
    ],
)
def test_a_run_gets_a_certificate_for_the_charts_judge_unless_it_names_one(
    reference: JudgeReference | None, namespace: str, *, expected: bool
) -> None:
    assert is_issued(reference, namespace, JUDGE) is expected
    assert not is_issued(reference, namespace, None)
