"""What autoscalers ask Prometheus, played by promtool: a judge without pods is woken, and one without work sleeps."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from builders.operator.world import evalrun, operator_settings
from builders.tools import missing

from evalrun_operator.lifecycle.situation import make_identity
from evalrun_operator.resources import RunPlan
from evalrun_operator.resources.autoscaling import LOAD_METRIC, load_query

ADAPTER_RULES = Path(__file__).parents[3] / "k8s" / "prometheus" / "adapter-rules.yaml"
PROMTOOL = shutil.which("promtool")
RUN = 'namespace="evals",run="run"'
OTHER = 'namespace="evals",run="other"'
WAITING = 'evalrun_problems{%s,dataset="humaneval",state="generated"}'


@pytest.mark.parametrize(
    ("series", "load"),
    [
        ({}, 0),
        ({WAITING % RUN: 0}, 0),
        ({WAITING % RUN: 40}, 1),  # no gateway: one is asked for
        ({WAITING % OTHER: 40}, 0),
        ({f'evalrun_judge_queue_depth{{{RUN},pod="a"}}': 5, f'evalrun_judge_inflight{{{RUN},pod="b"}}': 3}, 8),
        ({f'evalrun_judge_inflight{{{RUN},pod="a"}}': 2, WAITING % RUN: 2}, 3),
    ],
)
def test_the_load_wakes_a_judge_that_sleeps(series: dict[str, int], load: int, tmp_path: Path) -> None:
    run = evalrun()
    query = load_query(RunPlan(make_identity(run), run.spec, operator_settings(), "token"))
    assert_evaluates(query, series, load, tmp_path)


def test_the_rules_for_prometheus_adapter_offer_the_metric_that_autoscalers_ask_for(tmp_path: Path) -> None:
    (rule,) = yaml.safe_load(ADAPTER_RULES.read_text())["externalRules"]
    assert rule["name"] == {"as": LOAD_METRIC}
    series = {f'evalrun_judge_queue_depth{{{RUN},pod="a"}}': 5, f'evalrun_judge_inflight{{{RUN},pod="b"}}': 3}
    others = {f'evalrun_judge_queue_depth{{{OTHER},pod="a"}}': 9, f'evalrun_judge_inflight{{{OTHER},pod="b"}}': 9}
    query = rule["metricsQuery"].replace("<<.LabelMatchers>>", RUN)
    assert_evaluates(query, {**series, **others}, 8, tmp_path)


def assert_evaluates(query: str, series: dict[str, int], value: int, tmp_path: Path) -> None:
    if PROMTOOL is None:
        missing("no promtool: install Debian's package prometheus")
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": str(value)} for name, value in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": "0m", "exp_samples": [{"labels": "{}", "value": value}]}],
    }
    file = tmp_path / "case.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "1m", "tests": [case]}))
    done = subprocess.run([PROMTOOL, "test", "rules", str(file)], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
