"""The alerts: promtool plays their firing and their silence; every alert has both."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.tools import missing
from monitoring.alerts import ALERTS

CASES = Path(__file__).parent / "alerts_test.yaml"
PROMTOOL = shutil.which("promtool")


def test_promtool_sees_each_alert_fire_and_keep_silent() -> None:
    if PROMTOOL is None:
        missing("no promtool: install Debian's package prometheus")
    done = subprocess.run([PROMTOOL, "test", "rules", str(CASES)], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", [alert.name for alert in ALERTS])
def test_every_alert_has_a_case_of_firing_and_a_group_of_silence(name: str) -> None:
    groups: list[dict[str, Any]] = yaml.safe_load(CASES.read_text())["tests"]
    expected = [
        [bool(case["exp_alerts"]) for case in group["alert_rule_test"]]
        for group in groups
        if {case["alertname"] for case in group.get("alert_rule_test", ())} == {name}
    ]
    assert any(any(group) for group in expected)
    assert any(not any(group) for group in expected)
