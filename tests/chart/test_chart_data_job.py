"""The Job that prepares data: its plan is one that the command reads, and its pod runs the command."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.cluster.chart import Chart, Object

from evalrun_data.governance.__main__ import main
from evalrun_data.governance.plan import read_plan
from evalrun_runtime.exits import ExitCode

PLAN = {"datasets": [{"name": "mbpp_reg", "source": "s3://sources/mbpp.jsonl"}]}


def values(**more: Any) -> dict[str, Any]:
    return {"prepareData": {"enabled": True, "claim": "eval-data", "plan": PLAN, **more}}


def rendered(chart: Chart, **more: Any) -> tuple[Object, Object]:
    objects = [item for item in chart.render(values(**more)) if "prepare-data" in item["metadata"]["name"]]
    by_kind = {item["kind"]: item for item in objects}
    assert by_kind.keys() == {"ConfigMap", "Job", "NetworkPolicy"}
    return by_kind["ConfigMap"], by_kind["Job"]


def test_data_job_plan_in_the_config_map_is_readable_by_the_command(chart: Chart, tmp_path: Path) -> None:
    config, _ = rendered(chart)
    (tmp_path / "plan.yaml").write_text(config["data"]["plan.yaml"])
    (dataset,) = read_plan(tmp_path / "plan.yaml").datasets
    assert (dataset.name, dataset.sources, dataset.role) == ("mbpp_reg", ("s3://sources/mbpp.jsonl",), "dev")
    assert yaml.safe_load(config["data"]["plan.yaml"]) == PLAN


def test_data_job_pod_runs_prepare_on_the_mounted_plan_and_claim(
    chart: Chart, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, job = rendered(chart, credentialsSecret="bucket")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["python", "-m", "evalrun_data.governance"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert container["args"] == ["prepare", f"{mounts['plan']}/plan.yaml", f"--output={mounts['data']}"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["plan"]["configMap"]["name"] == config["metadata"]["name"]
    assert volumes["data"]["persistentVolumeClaim"]["claimName"] == "eval-data"
    assert container["envFrom"] == [{"secretRef": {"name": "bucket"}}]
    (tmp_path / "plan.yaml").write_text("datasets: []")
    arguments = [argument.replace(mounts["plan"], str(tmp_path)) for argument in container["args"]]
    assert main(arguments) == ExitCode.BAD_INPUT
    assert "expected a list `datasets`" in capsys.readouterr().err


def test_data_job_after_a_failed_audit_or_bad_input_is_not_retried(chart: Chart) -> None:
    _, job = rendered(chart)
    rule = job["spec"]["podFailurePolicy"]["rules"][0]
    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"]["values"] == [ExitCode.FAILED, ExitCode.BAD_INPUT]
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_data_job_with_another_plan_has_another_name(chart: Chart) -> None:
    other = {"datasets": [{"name": "mbpp_reg", "source": "s3://sources/other.jsonl"}]}
    assert rendered(chart)[1]["metadata"]["name"] != rendered(chart, plan=other)[1]["metadata"]["name"]


@pytest.mark.parametrize("more", [{"resources": {"limits": {"memory": "8Gi"}}}, {"credentialsSecret": "other"}])
def test_data_job_with_a_changed_pod_has_another_name(chart: Chart, more: dict[str, Any]) -> None:
    """A Job's pod cannot be changed: an upgrade of the release had failed as a whole."""
    assert rendered(chart, **more)[1]["metadata"]["name"] != rendered(chart)[1]["metadata"]["name"]


def test_data_job_with_another_image_has_another_name(chart: Chart) -> None:
    jobs = [
        item
        for tag in ("1", "2")
        for item in chart.render({**values(), "images": {"tag": tag}})
        if item["kind"] == "Job"
    ]
    assert len({job["metadata"]["name"] for job in jobs}) == 2


def test_default_values_render_no_data_job(chart: Chart) -> None:
    assert not [item for item in chart.render({}) if item["kind"] == "Job"]
