"""A real Prometheus on loopback: scrapes what it is told, answers queries."""

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from builders.cluster.controlplane import until
from builders.ports import free_ports
from builders.tools import missing

SCRAPE_INTERVAL = "100ms"
"""A run of the tests takes seconds."""
ALL = {"$__rate_interval": "10m", "$namespace": ".*", "$run": ".*", "$schedule": ".*"}
"""What Grafana puts in with `All` chosen, over a time in which a whole run fits on a busy machine."""
OPERATORS = re.compile(
    r"evalrun_(runs|reconcile_seconds|run_accepted_at_1|run_failed|run_refused|run_preparing_since|gate_passed"
    r"|checkpoint|schedule)|^max\(evalrun_operator_leads|^evalrun:"
)
"""Series that the operator alone has, or that our rules record of them, and that an expression is nothing without."""
RULES = Path(__file__).parents[3] / "charts" / "evalrun" / "alerts" / "evalrun.rules.yaml"
"""The rules that the chart ships."""


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus that runs."""

    url: str

    def query(self, expression: str, time: float | None = None) -> list[dict[str, Any]]:
        """Return the series of an expression, now or at a time in Unix seconds.

        Raises:
            AssertionError: Prometheus refuses the expression.
        """
        fields = {"query": expression, **({} if time is None else {"time": f"{time:.3f}"})}
        try:
            with urllib.request.urlopen(
                f"{self.url}/api/v1/query?{urllib.parse.urlencode(fields)}", timeout=20
            ) as answer:
                content = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from error
        found: list[dict[str, Any]] = content["data"]["result"]
        return found

    def value(self, expression: str, time: float | None = None) -> float:
        (series,) = self.query(expression, time)
        return float(series["value"][1])

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def as_grafana_asks(expression: str, variables: Mapping[str, str] = ALL) -> str:
    for name, value in variables.items():
        expression = expression.replace(name, value)
    return expression


def needs_the_operator(expression: str) -> bool:
    return OPERATORS.search(expression) is not None


def static_job(name: str, port: int, **labels: str) -> dict[str, Any]:
    return {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": labels}]}


@contextmanager
def running_prometheus(
    directory: Path, jobs: Sequence[Mapping[str, Any]], interval: str = SCRAPE_INTERVAL
) -> Iterator[Prometheus]:
    """Run Prometheus with these jobs and our rules; its log is in the directory. Skips if it is absent; fails in CI."""
    program = shutil.which("prometheus")
    if program is None:
        missing("no Prometheus: install Debian's package prometheus")
    (port,) = free_ports(1)
    config = directory / "prometheus.yml"
    timing = {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": "1s"}
    scraped = [{**job, "honor_labels": True} for job in jobs]
    config.write_text(yaml.safe_dump({"global": timing, "rule_files": [str(RULES)], "scrape_configs": scraped}))
    flags = [
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([program, *flags, "--log.level=warn"], stdout=log, stderr=subprocess.STDOUT)
    try:
        prometheus = Prometheus(f"http://127.0.0.1:{port}")
        until(lambda: process.poll() is not None or prometheus.is_ready(), "Prometheus", 40.0)
        if process.poll() is not None:
            raise RuntimeError(f"Prometheus ended: {(directory / 'prometheus.log').read_text()[-2000:]}")
        # It says that it is ready up to 5 s before it knows its targets: what a quick run counted by then is whole at
        # its first scrape and never increases.
        until(lambda: len(prometheus.query("up")) >= len(jobs), "Prometheus' targets", 40.0)
        yield prometheus
    finally:
        process.kill()
        process.wait()
