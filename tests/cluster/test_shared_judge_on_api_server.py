"""Certificates of the chart's judge on a real API server: a fresh installation gets them, a run that names the judge
gets its own, and both get others with another authority, in mid-run, while operators are killed."""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from builders.cluster.chart import VALUE_SETS, Chart, environment, named, of_kind
from builders.cluster.controlplane import ControlPlane, MissingBinariesError, find_binaries, until
from builders.operator.evalruns import evalrun_manifest
from builders.operator.running_operator import (
    MERGE,
    OPERATOR_NAMESPACE,
    Run,
    apply,
    make_namespace,
    operator_kubeconfig,
    remove_namespace,
)
from builders.operator.two_operators import Operators
from builders.tools import missing

from evalrun_operator.certificates.issuing import Certificate, Usage, compute_remaining_validity
from evalrun_operator.certificates.judge_certificates import list_secret_usages
from evalrun_operator.settings import SharedJudge

NAMESPACE = "judged"
SECRETS = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/secrets"
FLAGS = ("--poll-seconds=0.5", "--backoff-seconds=60")
LEDGER_SECONDS = 30.0
"""Long enough that the run is under way when its judge gets another authority."""


@pytest.fixture
def operators(nodes: ControlPlane) -> Iterator[Operators]:
    make_namespace(nodes, NAMESPACE)
    both = Operators(nodes, operator_kubeconfig(nodes), LEDGER_SECONDS, FLAGS)
    yield both
    both.kill()
    remove_namespace(nodes, NAMESPACE)


@pytest.fixture
def chart() -> Chart:
    try:
        return Chart(find_binaries(["helm"])["helm"])
    except MissingBinariesError as error:
        missing(str(error))


def install(plane: ControlPlane, chart: Chart, operators: Operators) -> SharedJudge:
    """Apply what the chart renders for a shared judge, without its pods; give the operators the chart's settings."""
    objects = chart.render({**VALUE_SETS["reward"], "crds": {"create": False}}, namespace=OPERATOR_NAMESPACE)
    rights = [named(objects, kind, "evalrun-operator-tokens") for kind in ("Role", "RoleBinding")]
    apply(plane, *of_kind(objects, "Secret"), *rights)
    (container,) = named(objects, "Deployment", "evalrun-operator")["spec"]["template"]["spec"]["containers"]
    shared = {name: value for name, value in environment(container).items() if "SHARED" in name}
    for one in operators.processes:
        one.variables = shared
    return SharedJudge.model_validate_json(shared["EVALRUN_OPERATOR_SHARED_JUDGE"])


def test_a_fresh_installation_and_its_runs_get_certificates_and_follow_another_authority(
    nodes: ControlPlane, chart: Chart, operators: Operators
) -> None:
    judge = install(nodes, chart, operators)
    reference = {"name": judge.gateway, "namespace": judge.namespace}
    changes = {"spec.judgeRef": reference, "spec.output": {"url": "s3://bucket/x"}, "spec.backoffLimit": 100}
    operators.start()
    until(lambda: is_issued(nodes, judge, ""), "certificates for the chart's judge")
    first = held(nodes, SECRETS, judge.gateway_secret)
    run = Run(nodes, NAMESPACE, "run").create(evalrun_manifest(changes), tls=None)
    before = aggregator(run)
    assert accepts(certificate_of(run, before), first)

    with_no_seed = {"data": {"seed": None}}
    assert nodes.request("PATCH", f"{SECRETS}/{judge.authority_secret}", with_no_seed, MERGE).status == 200
    operators.kill_leader()  # it would look again after half a minute; who starts looks at once
    until(lambda: is_issued(nodes, judge, first["ca.crt"]), "certificates of another authority")
    until(lambda: aggregator(run)["metadata"]["uid"] != before["metadata"]["uid"], "another aggregator")
    second = held(nodes, SECRETS, judge.gateway_secret)
    assert accepts(certificate_of(run, aggregator(run)), second)
    assert not accepts(certificate_of(run, before), second)
    run.wait_for("Succeeded")


def is_issued(plane: ControlPlane, judge: SharedJudge, besides: str) -> bool:
    """Return whether each Secret of the judge holds a certificate of one authority, other than an earlier one."""
    found = {name: held(plane, SECRETS, name) for name in list_secret_usages(judge)}
    authorities = {files.get("ca.crt", "") for files in found.values()}
    if len(authorities) > 1 or authorities & {"", besides}:
        return False
    now = datetime.now(UTC)
    return all(
        compute_remaining_validity(Certificate(files["tls.crt"], files["tls.key"]), files["ca.crt"], usage, now)
        is not None
        for files, usage in zip(found.values(), list_secret_usages(judge).values(), strict=True)
    )


def held(plane: ControlPlane, secrets: str, name: str) -> dict[str, str]:
    data = plane.request("GET", f"{secrets}/{name}").body.get("data") or {}
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def aggregator(run: Run) -> dict[str, Any]:
    """Return the run's aggregator, once there is one."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        found[:] = [one for one in run.objects("statefulsets") if "deletionTimestamp" not in one["metadata"]]
        return bool(found)

    until(there, "the run's aggregator")
    return found[0]


def certificate_of(run: Run, made: dict[str, Any]) -> dict[str, str]:
    (volume,) = (one for one in made["spec"]["template"]["spec"]["volumes"] if one["name"] == "judge-tls")
    return held(run.plane, f"/api/v1/namespaces/{run.namespace}/secrets", volume["secret"]["secretName"])


def accepts(caller: dict[str, str], gateway: dict[str, str]) -> bool:
    now, host = datetime.now(UTC), f"evalrun-judge.{OPERATOR_NAMESPACE}.svc"
    shown = Certificate(caller["tls.crt"], caller["tls.key"]), Certificate(gateway["tls.crt"], gateway["tls.key"])
    return (
        compute_remaining_validity(shown[0], gateway["ca.crt"], Usage(), now) is not None
        and compute_remaining_validity(shown[1], caller["ca.crt"], Usage([host]), now) is not None
    )
