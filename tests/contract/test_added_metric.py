"""A metric is added in two files, its description and its estimator, and then gates and is shown everywhere."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders.data import PROJECT_ROOT

DESCRIPTION = """
METRICS = (
    *METRICS[:-1],
    Metric(
        "half_accepted_rate",
        "half accepted",
        "problems of which at least half of the samples were accepted",
        gates=True,
        measured=Measured.BUDGET,
        columns=(
            Column(Table.RESULTS, 40),
            Column(Table.HEADLINE, 40, prominent=True),
            Column(Table.COMPARISON, 40),
        ),
    ),
    METRICS[-1],
)
"""
ESTIMATOR = """
def _half_accepted(given: Measurements, _number: int) -> ProblemValues:
    columns = given.columns
    hits = (columns.accepted * 2 >= columns.judged).astype(np.int64)
    return ProblemValues(hits, np.ones_like(hits), columns.judged > 0)


ESTIMATORS = {**ESTIMATORS, "half_accepted_rate": _half_accepted}
"""
SHOW = """
import json
import sys
from pathlib import Path

from builders.results.samples import sample_result
from generate_reference import with_metrics
from pydantic import ValidationError
from rich.console import Console

from evalrun_api.crd import evalrun_crd
from evalrun_api.v1alpha1 import Gate
from evalrun_cli.comparisons import views
from evalrun_cli.results_table import results_tables
from evalrun_results.comparisons.gate import decide_gate
from evalrun_results.exports.content import metric_values
from evalrun_results.metrics.accumulator import MetricOptions, MetricsAccumulator
from evalrun_results.outputs.qa_logs import QaOptions
from evalrun_results.outputs.writer import OutputPlan, write_outputs

directory, page = Path(sys.argv[1]), Path(sys.argv[2])
results = [
    sample_result(problem, sample, ["success"] if sample < problem % 3 else ["wrong_answer"])
    for problem in range(60)
    for sample in range(2)
]
options = MetricOptions(budget=True)
for name in ("first", "second"):
    write_outputs(results, str(directory / name), OutputPlan({}, options, QaOptions(0.0, 2048)))
accumulator = MetricsAccumulator()
for result in results:
    accumulator.add(result)
console = Console(width=100)
with console.capture() as tables:
    for table in results_tables(json.loads((directory / "first" / "summary.json").read_text())):
        console.print(table)
views.compare(str(directory / "first"), str(directory / "second"), view="text", output=directory / "compared.txt")
gate = Gate.model_validate({"anchor": "0.1", "dataset": "humaneval", "metric": "half_accepted_rate"})
print(json.dumps({
    "summary": json.loads((directory / "first" / "metrics.json").read_text())["humaneval"]["half_accepted_rate"],
    "report": (directory / "first" / "report.html").read_text(),
    "terminal": tables.get(),
    "comparison": (directory / "compared.txt").read_text(),
    "export": metric_values(accumulator.finish(options))["eval/humaneval/half_accepted_rate"],
    "gate": decide_gate(gate, None, accumulator.datasets).decision,
    "crd": json.dumps(evalrun_crd()),
    "docs": with_metrics(page.read_text()),
}))
"""


def add_to(copy: Path, package: str, module: str, text: str) -> Path:
    """Copy a package and append a text to one of its modules, ahead of its list's readers."""
    (source,) = PROJECT_ROOT.glob(f"libs/*/src/{package}")
    shutil.copytree(source, copy / package)
    changed = copy / package / module
    written = changed.read_text()
    before, marker, after = written.partition("\nHEADLINE: Final")
    changed.write_text(f"{before}\n{text}{marker}{after}" if marker else f"{written}\n{text}")
    return changed


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("added")
    packages = directory / "packages"
    add_to(packages, "evalrun_registry", "metrics.py", DESCRIPTION)
    add_to(packages, "evalrun_results", "metrics/estimators.py", ESTIMATOR)
    tests, tools = PROJECT_ROOT / "tests", PROJECT_ROOT / "tools"
    done = subprocess.run(
        [sys.executable, "-c", SHOW, str(directory), str(PROJECT_ROOT / "docs" / "outputs.md")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (packages, tests, tools)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_added_metric_is_computed_and_exported(shown: dict[str, Any]) -> None:
    assert shown["summary"] == shown["export"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("place", ["report", "terminal", "comparison"])
def test_added_metric_is_shown(shown: dict[str, Any], place: str) -> None:
    assert "half accepted" in shown[place]


def test_added_metric_decides_a_gate(shown: dict[str, Any]) -> None:
    assert shown["gate"] == "PASS"


def test_added_metric_is_in_the_rules_and_texts_of_the_crd(shown: dict[str, Any]) -> None:
    assert "|half_accepted_rate|" in shown["crd"]
    assert "half_accepted_rate, accepted_by_turn_<t> or pass_at_<k>" in shown["crd"]
    assert "g.metric != 'half_accepted_rate'" in shown["crd"]
    assert "half_accepted_rate are measured by EVAL@budget only" in shown["crd"]


def test_added_metric_is_on_the_outputs_page(shown: dict[str, Any]) -> None:
    assert "| `half_accepted_rate` | problems of which at least half" in shown["docs"]
