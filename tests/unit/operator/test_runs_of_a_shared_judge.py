"""Runs that use the chart's judge: their certificate for it, and what happens when the judge wants another."""

from typing import Any

import pytest
from builders.operator.world import World, evalrun, operator_settings

from evalrun_api import names
from evalrun_operator.certificates.issuing import Authority, Certificate, Usage, compute_remaining_validity
from evalrun_operator.observation.records import ObjectKey

JUDGE = {
    "namespace": "judging", "gateway": "evalrun-judge", "sandbox": "evalrun-sandbox", "authority_secret": "authority",
    "gateway_secret": "judge-tls", "sandbox_secret": "sandbox-tls", "caller_secret": "caller-tls",
}  # fmt: skip
REFERENCE = {"name": "evalrun-judge", "namespace": "judging"}
AGGREGATOR = ObjectKey("StatefulSet", "run-aggregator")
OURS, ANOTHER = Authority("judge", "what nobody knows"), Authority("judge", "another")
DIRECTORY = "EVALRUN_AGGREGATOR_JUDGE_TLS_FOLDER"


def world(authority: Authority | None, reference: dict[str, Any] = REFERENCE, judge: Any = JUDGE) -> World:
    run = evalrun({"spec.judgeRef": reference}, rollout=False)
    return World(run=run, settings=operator_settings(shared_judge=judge), judge_authority=authority).settle()


def judge_secret(here: World) -> str | None:
    pod = here.objects[AGGREGATOR]["spec"]["template"]["spec"]
    directories = {one["name"]: one["value"] for one in pod["containers"][0]["env"] if one["name"] == DIRECTORY}
    mounts = {one["mountPath"]: one["name"] for one in pod["containers"][0]["volumeMounts"]}
    volumes = {one["name"]: one for one in pod["volumes"]}
    return volumes[mounts[directories[DIRECTORY]]]["secret"]["secretName"] if directories else None


def test_a_run_gets_a_certificate_of_the_judges_authority_that_calls_alone() -> None:
    here = world(OURS)
    name = judge_secret(here)
    assert name == names.judge_tls_secret("run", OURS.fingerprint)
    held = here.secrets[name]
    assert held.keys() == set(names.TLS_FILES)
    shown = Certificate(held["tls.crt"], held["tls.key"])
    assert compute_remaining_validity(shown, held["ca.crt"], Usage(), here.now) is not None
    assert compute_remaining_validity(shown, ANOTHER.certificate(here.now), Usage(), here.now) is None
    assert set(here.secrets) == {"run-token", name}


@pytest.mark.parametrize(
    ("reference", "judge", "secret"),
    [
        ({"name": "evalrun-judge", "namespace": "elsewhere"}, JUDGE, None),
        (REFERENCE, None, None),
        ({**REFERENCE, "tlsSecretRef": {"name": "mine"}}, JUDGE, "mine"),
    ],
)
def test_run_of_another_judge_uses_the_named_secret_only(reference: dict[str, Any], judge: Any, secret: str) -> None:
    here = world(None, reference, judge)
    assert judge_secret(here) == secret
    assert set(here.secrets) == {"run-token"}


@pytest.mark.parametrize(
    ("before", "after", "judge"),
    [(OURS, ANOTHER, JUDGE), (None, OURS, JUDGE), (OURS, None, None)],
    ids=["another authority", "from plain text to TLS", "from TLS to plain text"],
)
def test_a_run_follows_its_judge_in_mid_run(before: Authority | None, after: Authority | None, judge: Any) -> None:
    here = world(before, judge=JUDGE if before else None).services_up().settle()
    first = here.objects[AGGREGATOR]["metadata"]["uid"]
    here.judge_authority, here.settings = after, operator_settings(shared_judge=judge)
    assert [seen.ref for seen in here.step().delete] == [AGGREGATOR]
    here.finalize().settle().services_up().settle()
    assert here.objects[AGGREGATOR]["metadata"]["uid"] != first
    assert judge_secret(here) == (names.judge_tls_secret("run", after.fingerprint) if after else None)
    assert not here.step().delete


def test_an_authority_that_cannot_be_read_now_disturbs_no_run() -> None:
    here = world(OURS).services_up().settle()
    here.judge_authority = None
    for _ in range(3):
        assert not here.step().delete
    assert judge_secret(here) == names.judge_tls_secret("run", OURS.fingerprint)
