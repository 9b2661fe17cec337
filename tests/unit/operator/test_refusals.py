"""What a run's status says of writes that fail, and where a run keeps its settings."""

import json

import pytest
from builders.operator.world import operator_settings

from evalrun_api.v1alpha1 import Reason
from evalrun_operator.lifecycle.frozen import FROZEN, UnreadableSettingsError, freeze_settings, thaw_settings
from evalrun_operator.policies.condition_text import RunText
from evalrun_operator.policies.refusals import WriteFailure, report_writes
from evalrun_operator.settings import OperatorSettings
from evalrun_runtime.settings import load_settings

QUOTA = 'creating PodDisruptionBudget r-judge: poddisruptionbudgets.policy "r-judge" is forbidden: exceeded quota: q'
RIGHT = 'creating Job r-gen-1: jobs.batch is forbidden: User "x" cannot create resource "jobs"'
POLICY = 'creating StatefulSet r-aggregator: admission webhook "p.example.com" denied the request: no label team'
TAKEN = "Service evalrun-judge is there already, and the run did not make it (managed by Helm)"
AWAY = "creating Service r-judge: ReadTimeout"


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (
            WriteFailure("PodDisruptionBudget", Reason.REFUSED, QUOTA),
            "exceeded quota: q. The run goes on without it. Raise the",
        ),
        (WriteFailure("Job", Reason.REFUSED, RIGHT), "Give the operator's account the right that is named"),
        (WriteFailure("StatefulSet", Reason.REFUSED, POLICY), "no label team. Meet the admission policy that is named"),
        (
            WriteFailure("Service", Reason.NAME_TAKEN, TAKEN),
            "(managed by Helm). Delete or rename that object, or give the run",
        ),
        (WriteFailure("Service", Reason.REFUSED, "creating Service x: strange"), "Change what the message names."),
    ],
)
def test_refusal_is_quoted_with_the_remedy(failure: WriteFailure, says: str) -> None:
    text = report_writes([failure], 1)
    assert text is not None
    assert (text.status, text.reason) == ("False", failure.reason)
    assert says in text.message
    assert text.message.endswith("It is tried again by itself.")


def test_refused_needed_object_is_reported_before_an_optional_one() -> None:
    text = report_writes(
        [WriteFailure("PodDisruptionBudget", Reason.REFUSED, QUOTA), WriteFailure("Job", Reason.REFUSED, RIGHT)], 1
    )
    assert text is not None
    assert text.message.startswith("Creating Job r-gen-1")
    assert "1 more writes failed." in text.message


def test_write_failure_is_reported_only_after_repeated_failures() -> None:
    away = WriteFailure("Service", Reason.WRITE_FAILED, AWAY)
    assert report_writes([away], 2) is None
    text = report_writes([away], 3)
    assert text is not None
    assert (text.status, text.reason) == ("False", Reason.WRITE_FAILED)
    assert report_writes([], 9) == RunText("True", Reason.ALL_APPLIED)


def test_settings_survive_their_stay_in_a_status() -> None:
    settings = operator_settings(judge_image="judge:1", sandbox_slots=3, workers=7, model_cache_claim="models")
    kept = json.loads(json.dumps(freeze_settings(settings)))
    assert all(isinstance(value, str) for value in kept.values())
    assert (kept["judgeImage"], kept["sandboxSlots"]) == ("judge:1", "3")
    later = operator_settings(judge_image="judge:2", sandbox_slots=9, workers=20, otlp_endpoint="http://c:1")
    back = thaw_settings(later, kept)
    assert (back.judge_image, back.sandbox_slots, back.model_cache_claim) == ("judge:1", 3, "models")
    assert back.otlp_endpoint is None  # the run had none
    assert back.workers == 20  # the operator's own affair
    assert freeze_settings(back) == kept


def test_operators_environment_does_not_change_the_stored_settings_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chart names placements and labels in the environment, which an upgrade changes."""

    def chart(placement: object, labels: object) -> OperatorSettings:
        monkeypatch.setenv("EVALRUN_OPERATOR_PLACEMENT", json.dumps(placement))
        monkeypatch.setenv("EVALRUN_OPERATOR_POD_LABELS", json.dumps(labels))
        return load_settings(OperatorSettings, [], program="evalrun-operator")

    began = chart({"sandbox": {"nodeSelector": {"pool": "untrusted"}}}, {"team": "a"})
    kept = freeze_settings(began)
    assert thaw_settings(began, kept).placement == began.placement
    upgraded = chart(
        {"sandbox": {"nodeSelector": {"pool": "new"}}, "gateway": {"priorityClassName": "high"}}, {"x": "y"}
    )
    back = thaw_settings(upgraded, kept)
    assert (back.placement, back.pod_labels) == (began.placement, {"team": "a"})


def test_run_without_stored_settings_uses_those_of_the_operator() -> None:
    settings = operator_settings(judge_image="judge:2")
    assert thaw_settings(settings, {}) is settings
    assert thaw_settings(settings, {"ofANewerOperator": "x"}) is settings


def test_unreadable_stored_settings_raise_unreadable_settings() -> None:
    with pytest.raises(UnreadableSettingsError, match=r"status\.settings"):
        thaw_settings(operator_settings(), {"sandboxSlots": "many"})


@pytest.mark.parametrize(
    "name", ["aggregatorImage", "rayImage", "rayVersion", "sandboxSlots", "headMemory", "imagePullPolicy"]
)
def test_images_versions_and_defaults_are_frozen(name: str) -> None:
    assert name in FROZEN


@pytest.mark.parametrize(
    "name", ["namespace", "workers", "pollSeconds", "host", "token", "autoscaling", "aggregatorAddress"]
)
def test_settings_of_the_operator_itself_are_not_frozen(name: str) -> None:
    assert name not in FROZEN


def test_thawed_affinity_of_an_earlier_release_loses_only_unknown_fields() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone", "namespaces": ["other"]}
    affinity: dict[str, object] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        "nodeAffinity": None,
        "futureAffinity": {"a": {"b": {}}},
    }
    kept = {"placement": json.dumps({"sandbox": {"affinity": affinity}})}
    read = thaw_settings(operator_settings(), kept).placement["sandbox"].affinity
    assert read is not None
    anti_affinity = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}
    assert read.to_wire() == {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [anti_affinity]}}
