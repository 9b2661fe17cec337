"""The CronJob that prunes old runs: its pod runs a command that takes its arguments."""

from typing import Any

import pytest
from builders.cluster.chart import Chart, ChartRefusedError, Object

from evalrun_results.retention import main
from evalrun_runtime.exits import ExitCode


def rendered(chart: Chart, **more: Any) -> dict[str, Object]:
    values = {"retention": {"enabled": True, "places": ["s3://evaluations/runs"], **more}}
    made = [item for item in chart.render(values) if item["metadata"]["name"].endswith("-retention")]
    return {item["kind"]: item for item in made}


def pod_of(objects: dict[str, Object]) -> Any:
    return objects["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def test_the_cron_job_runs_every_night_and_never_twice_at_once(chart: Chart) -> None:
    objects = rendered(chart)
    assert objects.keys() == {"CronJob", "NetworkPolicy"}
    spec = objects["CronJob"]["spec"]
    assert (spec["schedule"], spec["concurrencyPolicy"]) == ("30 3 * * *", "Forbid")
    labels = spec["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
    assert objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize(
    ("more", "arguments"),
    [
        ({}, ["s3://evaluations/runs"]),
        ({"days": 0}, ["--retain-completions-days=0", "s3://evaluations/runs"]),
        ({"days": 90, "claim": "runs", "places": ["/data"]}, ["--retain-completions-days=90", "/data"]),
    ],
)
def test_retention_pod_gets_the_configured_arguments_and_claim(
    chart: Chart, more: dict[str, Any], arguments: list[str]
) -> None:
    pod = pod_of(rendered(chart, **more))
    (container,) = pod["containers"]
    assert container["command"] == ["python", "-m", "evalrun_results.retention"]
    assert container["args"] == arguments
    claims = [
        volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume
    ]
    assert claims == ([more["claim"]] if "claim" in more else [])


def test_retention_directory_without_runs_is_bad_input_and_is_not_retried(
    chart: Chart, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    job = rendered(chart)["CronJob"]["spec"]["jobTemplate"]["spec"]
    rule = job["podFailurePolicy"]["rules"][0]
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [ExitCode.BAD_INPUT])
    assert main([str(tmp_path)]) is ExitCode.BAD_INPUT
    assert "no finished run here" in capsys.readouterr().err


def test_retention_without_directories_names_the_missing_value(chart: Chart) -> None:
    with pytest.raises(ChartRefusedError, match=r"retention\.places: name the directories of runs"):
        chart.render({"retention": {"enabled": True}})
