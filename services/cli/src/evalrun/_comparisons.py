"""Comparisons and gates as a notebook shows them: a short `repr`, and tables with intervals."""

from dataclasses import dataclass

from evalrun._html import html_lines, html_table
from evalrun_cli.comparisons import text as words
from evalrun_cli.comparisons.several_text import CONTRAST_HEADINGS, contrast_row, shown_standings, standing_row
from evalrun_cli.comparisons.views import exit_code
from evalrun_registry.metrics import HEADLINE
from evalrun_results.comparisons import comparison, several
from evalrun_results.comparisons.gate import GateDecision, GateResult
from evalrun_runtime.exits import ExitCode


class Comparison(comparison.Comparison):
    """Two runs, problem by problem; differences are candidate (B) minus baseline (A)."""

    __slots__ = ()

    def __repr__(self) -> str:
        shown = []
        for each in self.datasets:
            found = each.differences.get(HEADLINE.name)
            change = (
                "-" if found is None else f"{words.change(found.metric, found.difference)} ({words.interval(found)})"
            )
            shown.append(f"{each.dataset}: {change}")
        return f"<Comparison {', '.join(shown)}>"

    def _repr_html_(self) -> str:
        parts = [html_lines([f"A: {self.baseline.place}", f"B: {self.candidate.place}"])]
        for each in self.datasets:
            rows = [
                [
                    words.label(found.metric),
                    words.value(found.metric, found.baseline),
                    words.value(found.metric, found.candidate),
                    words.change(found.metric, found.difference),
                    words.interval(found),
                ]
                for found in words.shown_differences(each)
            ]
            parts.append(html_lines([f"{each.dataset}: {each.problems} problems judged in both"], bold=True))
            parts.append(html_table(["", "A", "B", "B - A", "95 % interval"], rows))
            parts.append(html_lines(words.notes(each)))
        return "".join(parts) + html_lines(self.warnings)


class SeveralRuns(several.SeveralRuns):
    """Several runs side by side, and each pair's difference with its p-value by Holm's correction."""

    __slots__ = ()

    def __repr__(self) -> str:
        names = ", ".join(f"{each.letter}: {each.label}" for each in self.configurations)
        return f"<SeveralRuns {names}>"

    def _repr_html_(self) -> str:
        letters = [each.letter for each in self.configurations]
        parts = [html_lines(f"{each.letter}: {each.label}" for each in self.configurations)]
        for each in self.datasets:
            parts.append(html_lines([each.dataset], bold=True))
            parts.append(html_table(["", *letters], (standing_row(*row) for row in shown_standings(each))))
            parts.append(html_table(CONTRAST_HEADINGS, (contrast_row(row) for row in each.contrasts)))
        return "".join(parts) + html_lines(self.warnings)


@dataclass(frozen=True, slots=True, repr=False)
class GateDecisions:
    """The gates' decisions about a run."""

    results: tuple[GateResult, ...]

    @property
    def exit_code(self) -> ExitCode:
        """Exit code of `evalrun gate`: a failed gate outweighs an inconclusive one."""
        return exit_code([each.decision for each in self.results])

    @property
    def passed(self) -> bool:
        """Whether every gate passed. An inconclusive gate has not passed."""
        return all(each.decision is GateDecision.PASS for each in self.results)

    def __repr__(self) -> str:
        return f"<GateDecisions {', '.join(f'{each.dataset} {each.metric}: {each.decision}' for each in self.results)}>"

    def _repr_html_(self) -> str:
        rows = ([f"{each.dataset} {each.metric}", str(each.decision), each.message] for each in self.results)
        return html_table(["gate", "decision", "why"], rows)
