"""Mutual TLS as a run gets it that says nothing of it, the way off by name, and certificates of named Secrets that have
expired: operator, API server, a ledger."""

import base64
import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from builders.cluster.certificates import Issuer, tls_secrets
from builders.cluster.controlplane import ControlPlane, until
from builders.operator.connect_proxy import connect_proxy
from builders.operator.evalruns import evalrun_manifest
from builders.operator.running_operator import (
    Run,
    ScriptedLedger,
    apply,
    make_namespace,
    operator_kubeconfig,
    remove_namespace,
    running_operator,
    serving_ledger,
    volume,
)

from evalrun_operator.certificates.issuing import VALID_FOR, Usage
from evalrun_operator.settings import OperatorSettings

CERTIFICATES = {
    "ca.crt", *(f"{part}.{what}" for part in ("aggregator", "judge", "sandbox", "generator", "operator")
                for what in ("crt", "key")),
}  # fmt: skip


NUMBERS = itertools.count()


@pytest.fixture
def namespace(nodes: ControlPlane) -> Iterator[str]:
    name = f"tls-{next(NUMBERS)}"  # one that is deleted takes nothing for a while
    make_namespace(nodes, name)
    apply(nodes, volume(f"{name}-of-another-run"))
    yield name
    remove_namespace(nodes, name)


def secret_of(run: Run) -> dict[str, str]:
    """Return what the run's Secret holds, once it is there."""
    found: list[dict[str, Any]] = []

    def made() -> bool:
        found[:] = run.objects("secrets")
        return bool(found)

    until(made, "the run's Secret")
    return {key: base64.b64decode(value).decode() for key, value in found[0]["data"].items()}


def test_tls_unset_uses_tls_and_disabled_uses_plain_text(nodes: ControlPlane, namespace: str) -> None:
    # kwok ends the generator's pods at once, whatever the ledger lacks
    manifest = evalrun_manifest({"spec.output": {"url": "s3://bucket/x"}, "spec.backoffLimit": 100})
    by_name = OperatorSettings.model_fields["aggregator_address"].default
    ledgers = ScriptedLedger(), ScriptedLedger()
    places: dict[str, str] = {}
    with (
        connect_proxy(places) as proxy,
        running_operator(nodes, operator_kubeconfig(nodes), by_name, variables=proxy),
    ):
        silent = Run(nodes, namespace, "silent").create(manifest, tls=None)
        plain = Run(nodes, namespace, "plain").create(manifest)
        held = secret_of(silent)
        assert held.keys() >= CERTIFICATES
        assert not [key for key in secret_of(plain) if key.endswith((".crt", ".key"))]
        with serving_ledger(ledgers[0], held) as secured, serving_ledger(ledgers[1]) as unsecured:
            places[f"silent-aggregator.{namespace}.svc:50051"] = secured
            places[f"plain-aggregator.{namespace}.svc:50051"] = unsecured
            for run, ledger in zip((silent, plain), ledgers, strict=True):
                run.wait_for("Generated", "False", "Generating")
                ledger.generated = ledger.judged = ledger.total
                run.wait_for("Succeeded")
        pods = {run.name: json.dumps(run.objects("statefulsets")) for run in (silent, plain)}
    assert "EVALRUN_AGGREGATOR_TLS_FOLDER" in pods["silent"]
    assert not [word for word in ("TLS_DIRECTORY", "--health-port") if word in pods["plain"]]
    assert {run.name: run.get()["status"]["settings"]["tls"] for run in (silent, plain)} == dict.fromkeys(
        pods, "issued"
    )


def test_a_certificate_that_has_expired_is_named_in_the_conditions_until_it_is_renewed(
    nodes: ControlPlane, namespace: str
) -> None:
    issuer = Issuer({"server": Usage([f"*.{namespace}.svc"]), "caller": Usage()})
    expired, renewed = issuer.issue(datetime.now(UTC) - 2 * VALID_FOR), issuer.issue()
    for secret in tls_secrets(renewed):
        apply(nodes, {**secret, "metadata": {**secret["metadata"], "namespace": namespace}})
    references = {part: {"name": "server"} for part in ("aggregator", "gateway", "sandbox", "generator")}
    references["operator"] = {"name": "caller"}
    manifest = evalrun_manifest(
        {"spec.output": {"url": "s3://bucket/x"}, "spec.backoffLimit": 100, "spec.tlsSecretRefs": references}
    )
    by_name = OperatorSettings.model_fields["aggregator_address"].default
    ledger, places = ScriptedLedger(), dict[str, str]()
    place = f"named-aggregator.{namespace}.svc:50051"
    with (
        connect_proxy(places) as proxy,
        running_operator(nodes, operator_kubeconfig(nodes), by_name, variables=proxy),
    ):
        run = Run(nodes, namespace, "named").create(manifest, tls=None)
        with serving_ledger(ledger, of_aggregator(expired["server"])) as places[place]:
            until(lambda: "(renew the server's certificate" in judged(run), "the cause in the conditions")
            assert "certificate has expired" in judged(run)
            assert judged(run).endswith("The Secrets are server (aggregator's) and caller.")
        with serving_ledger(ledger, of_aggregator(renewed["server"])) as places[place]:
            ledger.generated = ledger.judged = ledger.total
            run.wait_for("Succeeded")


def judged(run: Run) -> str:
    message: str = run.conditions().get("Judged", {}).get("message", "")
    return message


def of_aggregator(files: dict[str, str]) -> dict[str, str]:
    """Return the files of a Secret of one's own under the keys of a Secret that the operator makes."""
    return {"aggregator.crt": files["tls.crt"], "aggregator.key": files["tls.key"], "ca.crt": files["ca.crt"]}
