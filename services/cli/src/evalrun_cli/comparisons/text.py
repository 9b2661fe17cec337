"""Texts for metrics and differences, shared by all formats. Pure."""

from collections.abc import Iterator, Sequence

from evalrun_registry.metrics import HEADLINE, falls, find_metric, is_share
from evalrun_results.comparisons.comparison import DatasetComparison
from evalrun_results.comparisons.differences import Difference
from evalrun_results.comparisons.gate import GateResult
from evalrun_results.comparisons.power import MIN_SIGNIFICANT_FLIPS
from evalrun_results.repeated_figures import RATIO_OF_TESTS


def label(metric: str) -> str:
    """Return a metric's name in words."""
    named = find_metric(metric)
    return metric if named is None else named.title


def value(metric: str, number: float) -> str:
    """Return a metric's value: a percentage, or an amount."""
    return f"{100 * number:.1f} %" if is_share(metric) else amount(number)


def change(metric: str, number: float) -> str:
    """Return a difference with its sign; shares in percentage points (pt)."""
    text, unit = (f"{100 * number:.1f}", " pt") if is_share(metric) else (amount(number), "")
    if float(text) == 0:
        return f"0{unit}"
    return f"{text}{unit}" if text.startswith("-") else f"+{text}{unit}"


def is_failure(metric: str) -> bool:
    """Return whether a metric is the share of problems with a certain kind of failure."""
    return is_share(metric) and falls(metric)


def amount(number: float) -> str:
    """Return a number to about three digits, without an exponent."""
    size = abs(number)
    digits = 0 if size >= 100 or size == 0 else 1 if size >= 10 else 2 if size >= 1 else 4
    return f"{number:.{digits}f}"


def shown_differences(each: DatasetComparison) -> list[Difference]:
    """Return the differences worth a line.

    A kind of failure that no run had is left out, and so is a pass ratio that repeats pass@1.
    """
    return [
        found
        for found in each.differences.values()
        if not (is_failure(found.metric) and not found.baseline and not found.candidate)
        and not _repeats_headline(found, each.differences.get(HEADLINE.name))
    ]


def _repeats_headline(found: Difference, headline: Difference | None) -> bool:
    """Return whether the difference is that of a pass ratio with the headline's values, which happens if each problem
    has a single test."""
    if found.metric != RATIO_OF_TESTS or headline is None:
        return False
    ours, its = ((each.problems, each.baseline, each.candidate, each.difference) for each in (found, headline))
    return ours == its


def interval(difference: Difference) -> str:
    """Return the interval of a difference, or a dash if too few problems were compared."""
    if difference.low is None or difference.high is None:
        return "-"
    low, high = (change(difference.metric, bound) for bound in (difference.low, difference.high))
    return f"{low.removesuffix(' pt')} to {high}"


def p_value(p: float) -> str:
    """Return a p-value with three digits; very small values with an exponent."""
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1e}"


def is_clear(difference: Difference) -> bool:
    """Return whether the interval excludes 0."""
    return difference.low is not None and difference.high is not None and (difference.low > 0 or difference.high < 0)


def notes(each: DatasetComparison) -> list[str]:
    """Explain what the metrics of a dataset can and cannot show."""
    if each.problems == 0:
        return ["No problem was judged in both runs, so there is nothing to compare"]
    return [*_mcnemar_note(each), *_power_notes(each), *_noise_notes(each)]


def _mcnemar_note(each: DatasetComparison) -> Sequence[str]:
    if each.mcnemar_p is None:
        return ["McNemar's test needs one sample per problem; the intervals above are valid for any number of samples"]
    lost, gained = len(each.lost), len(each.gained)
    tail = (
        ""
        if lost + gained >= MIN_SIGNIFICANT_FLIPS
        else f"; with fewer than {MIN_SIGNIFICANT_FLIPS} flips, p cannot be below 0.05"
    )
    return [
        f"McNemar's exact test: p = {p_value(each.mcnemar_p)} ({lost} solved only by A, {gained} only by B){tail}",
    ]


def _power_notes(each: DatasetComparison) -> Sequence[str]:
    found = each.differences.get(HEADLINE.name)
    if found is None:
        return []
    power = found.power
    if power.smallest_difference is None:
        return [f"Minimum detectable difference: unknown, because too few of the {power.problems} problems differ"]
    text = (
        f"Minimum detectable difference (80 % power, {power.problems} problems): "
        f"{100 * power.smallest_difference:.1f} points"
    )
    if power.problems_needed is not None and not is_clear(found):
        text += f"; {100 * abs(found.difference):.1f} points would need about {power.problems_needed} problems"
    return [text]


def _noise_notes(each: DatasetComparison) -> Sequence[str]:
    parts = []
    for role, letter in (("baseline", "A"), ("candidate", "B")):
        share = each.noise_floors.get(role, {}).get("value")
        if isinstance(share, int | float):
            parts.append(f"{letter} {100 * share:.1f} %")
    return [f"Noise floor (verdicts that flip when the same run is repeated): {', '.join(parts)}"] if parts else []


def gate_notes(each: GateResult) -> Iterator[str]:
    """Yield notes about a gate's decision."""
    if each.left_out:
        yield f"{each.left_out} problems could not be compared"
    yield from each.warnings
    if each.mcnemar_p is not None:
        yield f"McNemar's exact test: p = {p_value(each.mcnemar_p)}"
