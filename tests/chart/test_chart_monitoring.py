"""Dashboards and alerts reach the cluster as they were generated, where the values ask for them."""

import json

import yaml
from builders.cluster.chart import CHART, VALUE_SETS, Chart, named, of_kind


def test_dashboards_config_map_equals_the_files(chart: Chart) -> None:
    shipped = named(chart.render(VALUE_SETS["monitored"]), "ConfigMap", "evalrun-dashboards")
    assert shipped["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert shipped["metadata"]["annotations"] == {"grafana_folder": "evalrun"}
    files = {file.name: json.loads(file.read_text()) for file in (CHART / "dashboards").glob("*.json")}
    assert {name: json.loads(text) for name, text in shipped["data"].items()} == files
    assert sorted(files) == ["evalrun-checkpoints.json", "evalrun-judge-latency.json", "evalrun-throughput.json"]


def test_prometheus_rule_equals_the_alerts_file(chart: Chart) -> None:
    (rule,) = of_kind(chart.render(VALUE_SETS["monitored"]), "PrometheusRule")
    assert rule["spec"] == yaml.safe_load((CHART / "alerts" / "evalrun.rules.yaml").read_text())
    assert rule["metadata"]["labels"]["release"] == "prometheus"


def test_default_values_render_no_alerts_or_dashboards(chart: Chart) -> None:
    objects = chart.render()
    assert not of_kind(objects, "PrometheusRule")
    assert not of_kind(objects, "ConfigMap")


def test_no_monitor_overwrites_the_labels_that_name_a_run(chart: Chart) -> None:
    for monitor in of_kind(chart.render(VALUE_SETS["monitored"]), "ServiceMonitor"):
        assert all(endpoint["honorLabels"] for endpoint in monitor["spec"]["endpoints"])
