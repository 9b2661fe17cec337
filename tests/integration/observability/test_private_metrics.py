"""A real Prometheus scrapes a port that asks for a token, by what the shipped scrape configuration says of it."""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from builders.aggregator.prometheus import running_prometheus, static_job
from builders.cluster.chart import ROOT
from builders.cluster.controlplane import until
from builders.ports import free_ports

from evalrun_runtime.ready_line import parse_ready_line

TOKEN = "a-scrapers-own-token"
SHIPPED = ROOT / "k8s" / "prometheus" / "scrape-evalrun.yaml"


@pytest.fixture
def port() -> Iterator[int]:
    """The metrics port of a sandbox, which asks for the token."""
    (port,) = free_ports(1)
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    flags = ["--port=0", f"--metrics-port={port}", f"--metrics-token-sha256={digest}"]
    command = [sys.executable, "-m", "evalrun_sandbox", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        try:
            assert process.stdout is not None
            assert parse_ready_line(process.stdout.readline())
            yield port
        finally:
            process.kill()


def test_prometheus_scrapes_only_with_the_token(port: int, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    (line,) = re.findall(r"^# (authorization: .*?}) ?#?.*$", SHIPPED.read_text(encoding="utf-8"), re.MULTILINE)
    shipped = yaml.safe_load(line)
    shipped["authorization"]["credentials_file"] = str(token)
    wrong = {"authorization": {"credentials": "another"}}
    jobs = [
        {**static_job("with", port), **shipped}, static_job("without", port), {**static_job("wrong", port), **wrong},
    ]  # fmt: skip
    with running_prometheus(tmp_path, jobs) as prometheus:
        until(lambda: prometheus.value('up{job="with"}') == 1.0, "the port to be scraped with the token")
        assert prometheus.query('process_cpu_seconds_total{job="with"}')
        for job in ("without", "wrong"):
            until(lambda job=job: prometheus.query(f'up{{job="{job}"}}') != [], "a scrape")  # type: ignore[misc]
            assert prometheus.value(f'up{{job="{job}"}}') == 0.0
            assert prometheus.query(f'{{job="{job}",__name__=~"process_.*|evalrun_.*"}}') == []
