"""What is exported, where to, and what a failure does; without any service's package."""

from pathlib import Path
from typing import Any

import pytest
from builders.results.exports import run_config

from evalrun_api.run_config import RunConfig
from evalrun_api.v1alpha1 import Lineage
from evalrun_results.exports.content import ExportContent, curve_point, export_id
from evalrun_results.exports.exporter import Exported, ExportError, Target, WandbTarget
from evalrun_results.exports.process import environment, export_apart
from evalrun_results.exports.run_exports import RunExports, list_targets
from evalrun_results.metrics.accumulator import DatasetMetrics
from evalrun_results.metrics.figures import Figure
from evalrun_results.samples import JsonObject

BOTH: dict[str, Any] = {
    "wandb": {"project": "evals", "mode": "online"},
    "mlflow": {"trackingURI": "http://mlflow.tools:5000"},
}
METRICS = {
    "humaneval": DatasetMetrics(
        coverage=0.5,
        accepted_bounds=(0.0, 1.0),
        counts={"not_judged": 3},
        figures={
            "accepted_at_1": Figure(0.5, 0.4, 0.6, "wilson", 10),
            "money_per_solved": Figure(None, None, None, "bootstrap", 0),
        },
    )
}


class Services:
    """Takes exports; `failing` names the kinds that fail."""

    def __init__(self, *failing: str) -> None:
        self.failing = failing
        self.sent: dict[str, ExportContent] = {}

    def __call__(self, target: Target, content: ExportContent, directory: Path) -> Exported:
        if target.kind in self.failing:
            raise ExportError("503: away")
        self.sent[target.kind] = content
        return Exported(url=f"https://{target.kind}/{content.id}")


def exported(services: Services, exports: dict[str, Any]) -> Any:
    qa: dict[str, list[JsonObject]] = {"humaneval": [{"problem_id": "HumanEval/0", "response": "\ud800"}]}
    return RunExports(run_config(exports), services)({"run": "nightly"}, METRICS, qa, Path("/out"))


def test_every_metric_with_a_value_is_sent_to_every_service() -> None:
    services = Services()
    report = exported(services, BOTH)
    assert services.sent["wandb"] == services.sent["mlflow"]
    assert services.sent["wandb"].metrics == {
        "eval/humaneval/accepted_at_1": 0.5, "eval/humaneval/coverage": 0.5, "eval/humaneval/not_judged": 3.0,
    }  # fmt: skip
    assert services.sent["wandb"].qa == [{"problem_id": "HumanEval/0", "response": "\ufffd"}]
    run_id = services.sent["wandb"].id
    assert (report.wandb_url, report.warnings) == (f"https://wandb/{run_id}", ())
    assert report.entries["wandb"] == {
        "id": run_id, "project": "evals", "entity": None, "name": None, "group": None, "tags": (), "mode": "online",
        "state": "done",
        "url": f"https://wandb/{run_id}", "files": "",
    }  # fmt: skip


def test_failed_service_gives_a_warning_and_the_others_continue() -> None:
    services = Services("wandb")
    report = exported(services, BOTH)
    assert list(services.sent) == ["mlflow"]
    assert report.warnings == ("export to wandb failed: 503: away: send it later: evalrun publish wandb RUN --send",)
    assert (report.wandb_url, report.entries["wandb"]["state"]) == ("", "failed")
    assert report.entries["mlflow"]["state"] == "done"


@pytest.mark.parametrize(
    ("exports", "kinds"),
    [
        ({}, []),
        ({"wandb": {"project": "p", "mode": "disabled"}}, []),
        ({"wandb": {"project": "p", "mode": "offline"}}, ["wandb"]),
        ({"mlflow": {"trackingURI": "file:///somewhere"}}, ["mlflow"]),
        (BOTH, ["wandb", "mlflow"]),
    ],
)
def test_list_targets_follows_the_exports_of_the_spec(exports: dict[str, Any], kinds: list[str]) -> None:
    assert [target.kind for target in list_targets(run_config(exports).spec.exports)] == kinds


def test_export_id_is_stable_over_restarts_and_distinct_per_run() -> None:
    first = export_id(run_config({}))
    assert export_id(run_config({}, output_dir="/elsewhere")) == first  # the uid says it
    others = [{"uid": "u-2"}, {"rejudge": "again"}, {"run": "x"}, {"namespace": "n"}, {"uid": ""}]
    ids = {export_id(run_config({}, **other)) for other in others}
    assert len(ids | {first}) == len(others) + 1


def with_lineage(order: RunConfig, **lineage: object) -> RunConfig:
    spec = order.spec.model_copy(update={"lineage": Lineage.model_validate(lineage)})
    return order.model_copy(update={"spec": spec})


def test_runs_of_one_schedule_share_a_curve_and_a_rejudged_run_has_no_point() -> None:
    first = with_lineage(run_config({}), schedule="grpo", step=120, phase="rl")
    later = with_lineage(run_config({}, uid="u-2"), schedule="grpo", step=130)
    points = [curve_point(first), curve_point(later)]
    assert [(point and (point.schedule, point.step, point.phase)) for point in points] == [
        ("grpo", 120, "rl"), ("grpo", 130, ""),
    ]  # fmt: skip
    assert len({point and point.id for point in points}) == 1
    others = [{"schedule": "sft", "step": 120}, {"schedule": "grpo", "step": 120}]
    ids = {
        point and point.id
        for point in (
            curve_point(with_lineage(run_config({}), **others[0])),
            curve_point(with_lineage(run_config({}, namespace="n"), **others[1])),
        )
    }
    assert len(ids | {points[0] and points[0].id}) == 3
    assert curve_point(run_config({})) is None
    assert curve_point(with_lineage(run_config({}), schedule="grpo")) is None
    assert curve_point(with_lineage(run_config({}, rejudge="again"), schedule="grpo", step=120)) is None


def test_export_without_a_key_is_refused_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    content = ExportContent(id="i", run="r", namespace="n", info={}, metrics={}, qa=[])
    with pytest.raises(ExportError, match="set WANDB_API_KEY"):
        export_apart(WandbTarget(project="p"), content, tmp_path, scratch_in=tmp_path, seconds=1)


def test_key_comes_from_the_environment_only_and_files_use_the_scratch_directory() -> None:
    made = environment({"WANDB_API_KEY": "k", "HOME": "/root", "NETRC": "/root/.netrc"}, Path("/scratch"))
    assert made["WANDB_API_KEY"] == "k"
    assert {made[name] for name in ("WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_CACHE_DIR", "TMPDIR")} == {"/scratch"}
    assert made["NETRC"] == "/scratch/netrc"
