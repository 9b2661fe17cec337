"""The notebooks of `examples/`, executed by a real kernel, whose event loop runs while cells do."""

from pathlib import Path
from typing import Any

import pytest
from builders.command_line import PROJECT

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: make unit installs it")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: make unit installs it")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: make unit installs it")

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def executed(name: str, directory: Path) -> list[Any]:
    """Return the cells of an example after all of them have run."""
    notebook = nbformat.read(PROJECT / "examples" / name, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(directory)}}
    )
    client.execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def text_of(cell: Any) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


def html_of(cell: Any) -> str:
    return "".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)


def test_notebook_comparing_models_shows_progress_intervals_and_decision(tmp_path: Path) -> None:
    _, first, second, comparison, gates = executed("compare_models.ipynb", tmp_path)
    assert "3/3 generated" in text_of(first)  # progress belongs to the cell that judged
    assert "<td>33.3 %</td>" in html_of(first)
    assert text_of(second) == ""
    assert "Estimate(value=1.0, low=" in second.outputs[-1]["data"]["text/plain"]
    assert "95 % interval" in html_of(comparison)
    assert "+66.7 pt" in html_of(comparison)
    assert "sums accepted_at_1" in html_of(gates)


def test_notebook_exploring_results_lists_failures_and_reads_frames(tmp_path: Path) -> None:
    pytest.importorskip("duckdb", reason="duckdb is not installed: make unit installs it")
    _, loaded, failed, frame, duck = executed("explore_results.ipynb", tmp_path)
    assert "Succeeded" in html_of(loaded)
    assert [line.split()[0] for line in text_of(failed).splitlines()] == ["b", "c"]
    assert "success" in frame.outputs[-1]["data"]["text/plain"]
    assert "wrong_answer" in html_of(duck)
