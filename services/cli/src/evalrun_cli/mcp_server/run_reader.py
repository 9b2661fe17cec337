"""Reads the runs of a directory or bucket for an assistant, as bounded JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from evalrun_cli.catalogue.commands import FLIPS
from evalrun_cli.catalogue.database import open_database
from evalrun_cli.comparisons.views import compare_two
from evalrun_cli.samples.commands import find_rows
from evalrun_cli.samples.run_samples import open_samples
from evalrun_cli.samples.selection import Row, collect_texts, sort_tests
from evalrun_results.stored_run import StoredRun
from evalrun_runtime.exits import BadInputError

if TYPE_CHECKING:
    import duckdb

Json = dict[str, Any]

MOST_ROWS: Final = 100
"""Maximum number of rows of any list."""
MOST_TESTS: Final = 3
"""Maximum number of a sample's tests, failed tests first."""
MOST_ROWS_OF_A_SAMPLE: Final = 4
"""Maximum number of a sample's repeats and turns."""
MOST_CHARACTERS: Final = 8_000
"""Maximum characters of any text that a model, a program or a test wrote."""
_FACTS: Final = (
    "dataset", "problem_id", "sample", "turn", "repeat", "judged", "accepted", "final_status", "not_judged_reason",
    "pass_ratio", "output_tokens", "finish_reason", "extraction", "language", "forgeable", "gen_time",
    "total_judge_time",
)  # fmt: skip
"""Columns of a sample without text that a model, a program or a test wrote."""
_RUNS: Final = """
SELECT place AS run, state, partial, model, protocol, schedule, step, phase, gate, created, signed_by FROM runs
WHERE contains(lower(coalesce(model, '')), lower($model)) AND contains(lower(coalesce(state, '')), lower($state))
  AND contains(lower(coalesce(schedule, '')), lower($schedule))
ORDER BY created DESC, place
"""
_ABOUT: Final = "EXCLUDE (place, run, model, schedule, step, phase)"
_MEASURED: Final = {
    "datasets": f"SELECT * {_ABOUT} FROM datasets WHERE place = $place",  # noqa: S608 - constants of this module
    "metrics": f"SELECT * {_ABOUT} FROM metrics WHERE place = $place",  # noqa: S608
    "gates": f"SELECT * {_ABOUT} FROM gates WHERE place = $place",  # noqa: S608
}
_NOT_JUDGED: Final = """
SELECT dataset, coalesce(not_judged_reason, 'unknown') AS reason, min(problem_id) AS example FROM results
WHERE place = $place AND NOT judged GROUP BY ALL ORDER BY dataset, reason
"""


class RunReader:
    """Reads the runs below a directory or URL. A run is named as in `list_runs`, so only listed runs can be read.

    Every method raises BadInputError for a run or sample that is missing or unreadable.
    """

    def __init__(self, place: str) -> None:
        self._place = place

    def list_runs(self, model: str = "", state: str = "", schedule: str = "", limit: int = 50) -> Json:
        """Return runs, the newest first. Each text selects the runs that contain it."""
        wanted = {"model": model, "state": state, "schedule": schedule}
        with self._open() as views:
            return _bound_rows("runs", views.rows(_RUNS, wanted), limit)

    def read_metrics(self, run: str) -> Json:
        """Return the results of a run: its datasets with their coverage, metrics with intervals, and gates."""
        with self._open() as views:
            found: Json = {"run": run, "state": StoredRun.open(views.path(run)).summary.get("state")}
            return found | {view: views.rows(sql, {"place": run}) for view, sql in _MEASURED.items()}

    def compare_runs(self, baseline: str, candidate: str) -> Json:
        """Return how a run differs from another, with intervals and p-values; lists of problems are cut."""
        with self._open() as views:
            paths = views.path(baseline), views.path(candidate)
        found: Json = _cut_lists(compare_two(*paths).as_json())
        for side, run in (("baseline", baseline), ("candidate", candidate)):
            found[side] = {**found[side], "place": run}
        return found

    def list_flips(self, runs: Sequence[str], limit: int = 50) -> Json:
        """Return the problems that some of the runs solve and others do not."""
        with self._open(with_results=True) as views:
            for run in runs:
                views.path(run)
            found = views.rows(FLIPS, {"places": list(runs)})
        rows = [{**row, "accepted": dict(row["accepted"]), "ended": dict(row["ended"])} for row in found]
        return _bound_rows("problems", rows, limit)

    def read_sample(self, run: str, sample: str) -> Json:
        """Return a sample with its verdict and the tests that it failed.

        Args:
            run: name of the run.
            sample: `PROBLEM` or `PROBLEM#NUMBER`.
        """
        with self._open() as views:
            path = views.path(run)
        rows = find_rows(open_samples(path), sample)
        if not rows:
            raise BadInputError(f"{sample}: {run} has no such sample: name a problem_id, or PROBLEM_ID#SAMPLE")
        number = rows[0]["sample"]
        of_it = [row for row in rows if row["sample"] == number]
        others = sorted({row["sample"] for row in rows} - {number})
        return {
            "run": run,
            "rows": [_sample(row) for row in of_it[:MOST_ROWS_OF_A_SAMPLE]],
            "rows_left_out": max(0, len(of_it) - MOST_ROWS_OF_A_SAMPLE),
            "other_samples": others[:MOST_ROWS],
        }

    def explain_failures(self, run: str) -> Json:
        """Return why samples of a run were not judged, and why judged samples failed, with examples and remedies."""
        with self._open(with_results=True) as views:
            datasets: Any = StoredRun.open(views.path(run)).summary["datasets"]
            unjudged = views.rows(_NOT_JUDGED, {"place": run})
        found = {
            name: {
                "samples": dataset["counts"].get("samples", 0),
                "not_judged_causes": dataset["counts"].get("not_judged_causes", {}),
                "not_judged_examples": dict(
                    [(row["reason"], row["example"]) for row in unjudged if row["dataset"] == name][:MOST_ROWS]
                ),
                "failures": _cut_lists(list(dataset.get("failures", ()))),
            }
            for name, dataset in datasets.items()
        }
        return {"run": run, "datasets": found}

    @contextmanager
    def _open(self, *, with_results: bool = False) -> Iterator["_Views"]:
        with open_database(self._place, {"results"} if with_results else {"runs"}) as connection:
            yield _Views(connection, self._place)


class _Views:
    """The catalogue's views, for a single call."""

    def __init__(self, connection: "duckdb.DuckDBPyConnection", place: str) -> None:
        self._connection = connection
        self._place = place

    def rows(self, sql: str, values: Mapping[str, object]) -> list[Json]:
        """Return the rows of a SELECT. Raises BadInputError."""
        import duckdb

        try:
            found = self._connection.execute(sql, values)
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
        except duckdb.Error as error:
            raise BadInputError(f"the catalogue of {self._place} cannot answer: {error}") from error

    def path(self, run: str) -> str:
        """Return the path or URL of a run. Raises BadInputError if the run is not listed."""
        known = sorted(row["place"] for row in self.rows("SELECT place FROM runs", {}))
        if run not in known:
            raise BadInputError(f"{run}: no such run: list_runs names them: {', '.join(known[:5])}")
        return self._place if run == "." else f"{self._place.rstrip('/')}/{run}"


def _sample(row: Row) -> Json:
    tests = sort_tests(row["tests"] or ())
    program = row["code"] if (row["code"] or "").strip() != (row["response"] or "").strip() else None
    return {
        **{name: row.get(name) for name in _FACTS},
        "response": _mark_untrusted(row["response"]),
        "program": _mark_untrusted(program),
        "tests": len(tests),
        "tests_passed": sum(test["status"] == "success" for test in tests),
        "shown_tests": [
            {
                "case": test["case_index"],
                "status": test["status"],
                **{name: _mark_untrusted(text) for name, text in collect_texts(test).items()},
            }
            for test in tests[:MOST_TESTS]
        ],
    }


def _mark_untrusted(text: str | None) -> Json | None:
    """Return a text under a key that calls it untrusted, cut, and without lone surrogates, which JSON lacks."""
    if text is None:
        return None
    shown = text[:MOST_CHARACTERS].encode(errors="replace").decode()
    return {"untrusted_text": shown, "characters_left_out": max(0, len(text) - MOST_CHARACTERS)}


def _bound_rows(name: str, rows: list[Json], limit: int) -> Json:
    most = max(1, min(limit, MOST_ROWS))
    return {name: rows[:most], "found": len(rows), "is_cut": len(rows) > most}


def _cut_lists(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return JSON whose lists have at most `MOST_ROWS` entries; the last entry then counts the entries left out."""
    if isinstance(value, dict):
        return {name: _cut_lists(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        kept = [_cut_lists(each) for each in value[:MOST_ROWS]]
        return [*kept, f"{len(value) - MOST_ROWS} more are left out"] if len(value) > MOST_ROWS else kept
    return value


def plain_json(value: Json) -> Json:
    """Return values of DuckDB and Parquet as JSON, with dates as text."""
    found: Json = json.loads(json.dumps(value, default=str, allow_nan=False))
    return found
