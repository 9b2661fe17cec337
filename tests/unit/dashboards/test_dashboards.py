"""The dashboards as Grafana loads them: numbers, places and variables are right; the files are what the code says."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from generate_monitoring import CHART, DASHBOARDS, rendered
from generated_files import ROOT
from monitoring.alerts import ALERTS
from monitoring.grafana import COLUMNS, SCHEMA_VERSION, Dashboard, DashboardRow, Panel, Query

NAMES = [dashboard.uid for dashboard in DASHBOARDS]


def loaded(uid: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((ROOT / CHART / "dashboards" / f"{uid}.json").read_text())
    return content


def test_shipped_files_equal_the_rendered_ones() -> None:
    assert {path for path, text in rendered().items() if (ROOT / path).read_text() != text} == set()
    shipped = {*(ROOT / CHART / "dashboards").iterdir(), *(ROOT / CHART / "alerts").iterdir()}
    assert shipped == {ROOT / path for path in rendered()}


@pytest.mark.parametrize("uid", NAMES)
def test_dashboard_has_unique_ids_known_variables_and_complete_targets(uid: str) -> None:
    page = loaded(uid)
    assert page["uid"] == uid
    assert len(uid) <= 40  # Grafana refuses a longer one
    assert "id" not in page  # an id of another Grafana's database would replace a stranger's dashboard
    assert page["schemaVersion"] == SCHEMA_VERSION
    numbers = [panel["id"] for panel in page["panels"]]
    assert len(set(numbers)) == len(numbers)
    variables = [variable["name"] for variable in page["templating"]["list"]]
    third = "schedule" if uid == "evalrun-checkpoints" else "run"
    assert variables == ["datasource", "namespace", third]
    assert all("current" not in variable for variable in page["templating"]["list"][:1])  # Grafana takes its default
    for panel in page["panels"]:
        assert panel["title"]
        if panel["type"] != "row":
            assert panel["description"]
            assert panel["datasource"]["uid"] == "${datasource}"
            refs = [target["refId"] for target in panel["targets"]]
            assert refs
            assert len(set(refs)) == len(refs)
            for target in panel["targets"]:
                assert target["datasource"]["uid"] == "${datasource}"
                assert set(re.findall(r"\$\{?(\w+)", target["expr"])) <= {"namespace", third, "__rate_interval"}


@pytest.mark.parametrize("uid", NAMES)
def test_panels_do_not_overlap_or_exceed_the_grid(uid: str) -> None:
    places = [panel["gridPos"] for panel in loaded(uid)["panels"]]
    for place in places:
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= COLUMNS
        assert min(place["w"], place["h"]) > 0
    for a, b in itertools.combinations(places, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        above = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert beside or above, (a, b)


def test_panels_that_do_not_fit_beside_each_other_begin_a_new_line() -> None:
    panel = Panel("p", "d", [Query("1", "one")], width=10)
    page = Dashboard("u", "t", "d", [], [DashboardRow("first", [panel] * 3), DashboardRow("second", [panel])]).to_json()
    places = [(item["gridPos"]["x"], item["gridPos"]["y"], item["gridPos"]["h"]) for item in page["panels"]]
    assert places == [(0, 0, 1), (0, 1, 8), (10, 1, 8), (0, 9, 8), (0, 17, 1), (0, 18, 8)]


def test_dashboards_show_the_required_panels() -> None:
    throughput, judge, checkpoints = ({panel.title for panel in dashboard.panels} for dashboard in DASHBOARDS)
    assert throughput >= {"Problems/s", "Output tokens/s", "Sandbox slots in use", "Money a solved problem"}
    assert judge >= {"Queue", "Sandbox", "Total", "Sandbox slots in use", "Requests/s without a verdict, by cause"}
    assert checkpoints >= {"pass@1 of the newest checkpoint", "Step of the newest checkpoint with results"}
    (latency,) = [panel for panel in DASHBOARDS[1].panels if panel.title == "Total"]
    assert [query.legend for query in latency.queries] == ["p50", "p95", "p99"]


def test_no_query_names_a_series_that_no_service_has() -> None:
    known = re.findall(r'"(evalrun_\w+)"', Path(__file__).parents[2].joinpath("contract/test_metrics.py").read_text())
    expressions = [
        query.expression for dashboard in DASHBOARDS for panel in dashboard.panels for query in panel.queries
    ]
    expressions += [alert.expression for alert in ALERTS]
    for name in {name for text in expressions for name in re.findall(r"evalrun_\w+", text)}:
        assert name in known or re.sub(r"_(bucket|count|sum)$", "", name) in known, name
