"""A real Prometheus scrapes a real run: all panels, the alerts' bare expressions and the autoscalers' query have data.

What only the operator shows is asked for in tests/cluster. The services take their metrics' ports from the environment,
as any other setting; the label that a Service's or pod's labels give the judge's series stands in the scrape job here.
"""

import json
import math
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import requests
import yaml
from builders.aggregator.prometheus import (
    Prometheus,
    as_grafana_asks,
    needs_the_operator,
    running_prometheus,
    static_job,
)
from builders.cluster.controlplane import until
from builders.command_line import COMMAND, DEMO
from builders.operator.world import evalrun, operator_settings
from builders.ports import free_ports
from builders.reward.service import ECHO, batch
from generate_monitoring import DASHBOARDS
from monitoring.alerts import ALERTS

from evalrun_operator.lifecycle.situation import make_identity
from evalrun_operator.resources import RunPlan
from evalrun_operator.resources.autoscaling import load_query
from evalrun_runtime.ready_line import parse_ready_line

pytestmark = pytest.mark.timeout(400)  # the first test waits for the whole run

PARTS = ("aggregator", "judge", "sandbox", "generator", "reward")
OWN = {"namespace": "default", "run": "demo"}
PANELS = [
    pytest.param(query.expression, id=f"{panel.title}: {query.legend}")
    for dashboard in DASHBOARDS
    for panel in dashboard.panels
    for query in panel.queries
    if not needs_the_operator(query.expression)
]
RULES = [pytest.param(alert.expression, id=alert.name) for alert in ALERTS if not needs_the_operator(alert.expression)]


@dataclass(frozen=True)
class ScrapedRun:
    """A run that has ended, and the Prometheus that watched it."""

    prometheus: Prometheus
    last: float
    """When the aggregator was last scraped; Unix seconds."""

    def values(self, expression: str) -> list[float]:
        found = self.prometheus.query(expression, self.last)
        return [float(series["value"][1]) for series in found]

    def last_values(self, expression: str) -> list[float]:
        """Return the value that each series had last in the run: its part may be gone at the end, or answer late."""
        return self.values(f"last_over_time(({expression})[5m:100ms])")


@contextmanager
def rewarding(metrics_port: int, store: Path) -> Iterator[str]:
    """Serve rewards before a judge that nobody reaches: each request is retried for a second, and is not judged."""
    environment = {"EVALRUN_REWARD_METRICS_PORT": str(metrics_port), "EVALRUN_REWARD_DEADLINE_SECONDS": "1"}
    command = [*COMMAND, "serve", "reward", "--judge", "grpc://127.0.0.1:1", "--session-store", str(store)]
    with subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield next(filter(None, map(parse_ready_line, process.stdout or ())))
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScrapedRun]:
    directory = tmp_path_factory.mktemp("observability")
    manifest = yaml.safe_load(DEMO.read_text())
    manifest["spec"]["cost"] = {"gpuHour": "2.50", "currency": "EUR"}
    file = directory / "demo.yaml"
    file.write_text(yaml.safe_dump(manifest))
    ports = dict(zip(PARTS, free_ports(len(PARTS)), strict=True))
    environment = {f"EVALRUN_{part.upper()}_METRICS_PORT": str(port) for part, port in ports.items()}
    environment["EVALRUN_RECORDED_LATENCY_SECONDS"] = "1"  # every count is scraped at 0 first
    command = [*COMMAND, "run", str(file), "--local", "--endpoint", "builtin:demo", "--output", str(directory / "out")]
    jobs = [static_job(part, port, **OWN) for part, port in ports.items()]
    with (
        rewarding(ports["reward"], directory / "sessions") as address,
        running_prometheus(directory, jobs) as prometheus,
    ):
        until(lambda: prometheus.value('up{job="reward"}') == 1, "the reward service's first scrape")
        run = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        answer = requests.post(f"{address}/v1/rewards", data=json.dumps(batch(ECHO)), timeout=60)
        assert answer.json()["not_judged"] == 1
        said, _ = run.communicate(timeout=300)
        assert run.returncode == 0, said
        times = "max_over_time(timestamp(evalrun_last_progress_timestamp_seconds)[5m:100ms])"
        yield ScrapedRun(prometheus, prometheus.value(times))


@pytest.mark.parametrize("expression", PANELS)
def test_a_panel_has_data(run: ScrapedRun, expression: str) -> None:
    values = run.last_values(as_grafana_asks(expression))
    assert any(math.isfinite(value) for value in values), values


@pytest.mark.parametrize("expression", PANELS)
def test_a_panel_has_data_of_the_run_that_was_chosen_and_none_of_another(run: ScrapedRun, expression: str) -> None:
    chosen = {"$__rate_interval": "1m", "$namespace": "default", "$run": "demo"}
    assert run.last_values(as_grafana_asks(expression, chosen))
    assert not run.last_values(as_grafana_asks(expression, {**chosen, "$run": "other"}))


@pytest.mark.parametrize("expression", RULES)
def test_an_alert_has_data_to_decide_on(run: ScrapedRun, expression: str) -> None:
    values = run.last_values(expression)
    assert values
    assert all(math.isfinite(value) for value in values)


def test_metrics_equal_the_counts_of_the_run(run: ScrapedRun) -> None:
    states = {
        series["metric"]["state"]: float(series["value"][1])
        for series in run.prometheus.query("evalrun_problems", run.last)
    }
    assert states["accepted"] + states["rejected"] == sum(states.values()) == 32
    assert run.values("sum(evalrun_completions_total)") == [32]
    judged = 'evalrun_judge_request_seconds_count{outcome=~"accepted|rejected"}'
    assert run.values(f"sum(max_over_time({judged}[5m]))") == [32]
    assert run.values("sum(max_over_time(evalrun_judge_sandbox_seconds_count[5m])) >= 32")
    # The last scrape may have come after the generator had reported that its replica ended.
    assert run.values("max_over_time(evalrun_replica_up[5m])") == [1]


def test_the_autoscalers_query_has_data(run: ScrapedRun) -> None:
    wanted = evalrun()
    identity = replace(make_identity(wanted), name=OWN["run"], namespace=OWN["namespace"])
    query = load_query(RunPlan(identity, wanted.spec, operator_settings(), "token"))
    assert run.values(query) == [0]  # everything has been judged
    assert max(float(value) for _, value in run.prometheus.query(f"({query})[5m:100ms]", run.last)[0]["values"]) > 0


def test_the_variables_find_the_run(run: ScrapedRun) -> None:
    for metric in ("evalrun_problems", "evalrun_judge_queue_depth"):
        for series in run.prometheus.query(f"last_over_time({metric}[5m])", run.last):
            assert {name: series["metric"][name] for name in OWN} == OWN
