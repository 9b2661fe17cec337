"""The part of Grafana's dashboard JSON that the dashboards use, typed. The panels are placed automatically. Pure.

The types replace grafana-foundation-sdk, which is 4.8 MB of generated builders for every plugin, released again for
each Grafana. The JSON below is of schema 39, which newer Grafanas migrate when they load it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Json = dict[str, Any]

SCHEMA_VERSION = 39
"""Schema version of Grafana 10.3 and 11; newer versions migrate it when they load it."""
COLUMNS = 24
DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}

Unit = Literal["short", "s", "percentunit", "ops", "none", "dateTimeFromNow"]


@dataclass(frozen=True)
class Query:
    """An expression, and the name of its series."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """A chart or a number on a dashboard."""

    title: str
    description: str
    queries: Sequence[Query]
    unit: Unit = "short"
    kind: Literal["timeseries", "stat"] = "timeseries"
    width: int = 8
    """Width in columns, of 24."""
    stacked: bool = False
    max_value: float | None = None
    """Top of the axis; None leaves it to the data."""

    def to_json(self, number: int, place: Json) -> Json:
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": DATASOURCE,
            "gridPos": place,
            "targets": [_target(query, index, self.kind) for index, query in enumerate(self.queries)],
            "fieldConfig": {"defaults": self._defaults(), "overrides": []},
            "options": _TIME_SERIES_OPTIONS if self.kind == "timeseries" else _STAT_OPTIONS,
        }

    def _defaults(self) -> Json:
        defaults: Json = {"unit": self.unit, "min": 0}
        if self.max_value is not None:
            defaults["max"] = self.max_value
        if self.kind == "timeseries":
            defaults["custom"] = {
                "drawStyle": "line",
                "fillOpacity": 25 if self.stacked else 5,
                "showPoints": "never",
                "spanNulls": False,
                "stacking": {"mode": "normal" if self.stacked else "none", "group": "A"},
            }
        return defaults


@dataclass(frozen=True)
class DashboardRow:
    """Panels under one heading."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Variable:
    """A choice at the top of the dashboard: a label's values."""

    name: str
    label: str
    values: str
    """A Grafana query, e.g. `label_values(metric, label)`."""

    def to_json(self) -> Json:
        return {
            "type": "query",
            "name": self.name,
            "label": self.label,
            "datasource": DATASOURCE,
            "query": {"query": self.values, "refId": f"Variable-{self.name}"},
            # The value 2 refreshes when the time range changes, since runs come and go.
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            # The pattern also matches series without that label: a shared judge's series have no run.
            "allValue": ".*",
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
            "options": [],
            "hide": 0,
        }


@dataclass(frozen=True)
class Dashboard:
    """A dashboard of rows of panels."""

    uid: str
    title: str
    description: str
    variables: Sequence[Variable]
    rows: Sequence[DashboardRow]
    tags: Sequence[str] = ("evalrun",)

    @property
    def panels(self) -> list[Panel]:
        """Every panel, in order."""
        return [panel for row in self.rows for panel in row.panels]

    def to_json(self) -> Json:
        links: Json = {
            "tooltip": "",
            "type": "dashboards",
            "title": "evalrun",
            "tags": list(self.tags),
            "includeVars": True,
        }
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": list(self.tags),
            "schemaVersion": SCHEMA_VERSION,
            "version": 1,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"},
            "timezone": "browser",
            "annotations": {"list": []},
            "links": [{**links, "asDropdown": False, "keepTime": True, "targetBlank": False, "url": "", "icon": ""}],
            "templating": {"list": [_DATASOURCE_VARIABLE, *(variable.to_json() for variable in self.variables)]},
            "panels": _placed(self.rows),
        }


_DATASOURCE_VARIABLE: Json = {
    "type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "refresh": 1,
    "multi": False, "includeAll": False, "options": [], "hide": 0,
}  # fmt: skip
_TIME_SERIES_OPTIONS: Json = {
    "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
    "tooltip": {"mode": "multi", "sort": "desc"},
}
_STAT_OPTIONS: Json = {
    "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    "colorMode": "value", "graphMode": "area", "justifyMode": "auto", "orientation": "auto", "textMode": "auto",
}  # fmt: skip
_HEIGHTS = {"timeseries": 8, "stat": 5}


def _target(query: Query, index: int, kind: str) -> Json:
    return {
        "refId": chr(ord("A") + index),
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query.expression,
        "legendFormat": query.legend,
        "range": kind == "timeseries",
        "instant": kind == "stat",
    }


def _placed(rows: Sequence[DashboardRow]) -> list[Json]:
    """Number the panels and place them from left to right, row under row."""
    placed: list[Json] = []
    top = 0
    for row in rows:
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
        heading: Json = {"type": "row", "title": row.title, "collapsed": False, "panels": [], "gridPos": place}
        placed.append({"id": len(placed) + 1, **heading})
        top += 1
        left = height = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                top, left, height = top + height, 0, 0
            place = {"h": _HEIGHTS[panel.kind], "w": panel.width, "x": left, "y": top}
            placed.append(panel.to_json(len(placed) + 1, place))
            left, height = left + panel.width, max(height, _HEIGHTS[panel.kind])
        top += height
    return placed
