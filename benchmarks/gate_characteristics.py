"""How often each kind of gate and interval errs, and how often it decides, in every setting of `gate_scenarios.py`.

A gate is asked at 95 % with a margin: maxRegression 0.02, or minImprovement 0.01. Runs are drawn whose true difference
is at the margin (there PASS and FAIL may each be wrong in 2.5 %), two points better (an equal run, for maxRegression),
and three points worse. The product's own bounds decide. `judged` is what the judged answers alone would decide, and
`usual` what the t-interval over problems would: what most tools have.

    make bench-gates                                            # every cell, and the table of docs/gates.md
    .venv/bin/python benchmarks/gate_characteristics.py --sizes 50 164 --replicates 200 --no-page
"""

import argparse
import multiprocessing
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import get_args
from zlib import crc32

import numpy as np
from gate_cells import PAGE, Cell, GateKind, IntervalKind, read_cells, replace_table, write_cells
from gate_scenarios import Setting, draw_runs, mean_of, settings
from scipy.stats import norm, t

from evalrun_results.comparisons.differences import compute_reading_differences
from evalrun_results.comparisons.mean_bounds import chance_at_most
from evalrun_results.comparisons.readings import PairedReadings, Readings
from evalrun_results.metrics.figures import Mask, MetricSet
from evalrun_results.metrics.intervals import CONFIDENCE, MIN_PROBLEMS, Floats
from evalrun_results.sequential.confidence_sequence import DIFFERENCE
from evalrun_results.sequential.mean_decision import Population, Values, count_until_decision

FIGURES = Path(__file__).with_name("gate_characteristics.csv")
SIZES = (20, 50, 164, 500, 1055, 4000)
BETTER, WORSE = 0.02, -0.03
"""True differences, counted from the margin."""
ERROR = (1 - CONFIDENCE) / 2
WEIGHTS = (1.0, 2.0)
ANSWERS_HELD = 400_000
FEWER = 4
"""Divisor of the number of replicates of a bootstrap's interval, because each replicate takes 10,000 resamples."""
SPREAD = 1.0
"""Standard deviation of the logarithm of an amount, e.g. of an answer's seconds."""
PERCENTILE = 95.0
ROUNDING = 1e-9
AMOUNT = "avg_total_gen_tokens"

Verdicts = tuple[Mask, Mask]
"""Whether each replicate passed, and whether it failed."""


@dataclass(frozen=True)
class Draws:
    """Replicates of the values that a gate compares: arrays of replicates x problems."""

    lows: Floats
    highs: Floats
    floors: Floats
    ceilings: Floats
    """`floors` and `ceilings` bound each change before the candidate has answered."""
    truth: Floats
    """Mean change of each replicate, had every answer been judged."""
    samples: int
    base: float
    """Value that is subtracted from every value: the anchor, or 0."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=[*get_args(GateKind), *get_args(IntervalKind)])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--replicates", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--no-page", action="store_true", help="leave docs/gates.md and the figures' file as they are")
    options = parser.parse_args()
    kept = {} if options.no_page else {each.key: each for each in read_cells(FIGURES)}
    with multiprocessing.Pool(options.workers) as pool:
        for problems, kind in product(sorted(options.sizes), options.kinds):
            tasks = [(kind, setting, problems, options.replicates) for setting in settings() if fits(kind, setting)]
            found = pool.starmap(measure_cell, tasks, chunksize=1)
            kept |= {each.key: each for each in found}
            worst = max(found, key=lambda each: each.wrong)
            print(f"{kind}, {problems:,} problems: wrong at most {worst.wrong:.2%} ({worst.setting.text})", flush=True)
            if not options.no_page:
                write_cells(FIGURES, kept.values())
    if not options.no_page:
        PAGE.write_text(replace_table(PAGE.read_text(), list(kept.values())))
    beyond = [each for each in kept.values() if each.kind in get_args(GateKind) and each.wrong > each.allowed]
    for each in beyond:
        print(f"{each.kind}, {each.problems:,} problems, {each.setting.text}: {each.wrong:.2%} wrong", file=sys.stderr)
    return 1 if beyond else 0


def fits(kind: str, setting: Setting) -> bool:
    """Return whether a kind depends on what a setting varies: an interval of one run does not depend on how two runs
    differ."""
    if kind in get_args(GateKind):
        return True
    alone = setting.change == "one-way" and setting.missing == "none"
    return alone and (kind == "share" or (setting.difficulty == "mid" and setting.samples == 1))


def measure_cell(kind: str, setting: Setting, problems: int, replicates: int) -> Cell:
    """Simulate one cell. The seed is derived from the cell's kind, setting and number of problems."""
    rng = np.random.default_rng([crc32(f"{kind} {setting.text} {setting.missing}".encode()), problems])
    measure = measure_gate if kind in get_args(GateKind) else measure_interval
    return measure(kind, setting, problems, replicates, rng)


def measure_gate(kind: str, setting: Setting, problems: int, replicates: int, rng: np.random.Generator) -> Cell:
    """Simulate a gate at its margin, two points above it, and three points below it."""
    margin = 0.01 if kind == "minImprovement" else -0.02

    def shares(offset: float) -> list[float]:
        found = [
            decide_all(kind, each, margin)
            for each in draws_of(kind, setting, margin + offset, problems, replicates, rng)
        ]
        return [float(share) for share in np.concatenate(found, axis=1).mean(axis=1)]

    at_margin, better, worse = shares(0.0), shares(BETTER), shares(WORSE)
    return Cell(
        kind=kind, samples=setting.samples, difficulty=setting.difficulty, change=setting.change,
        missing=setting.missing, problems=problems, replicates=replicates, nominal=ERROR,
        wrong=max(at_margin[2:4]), passes=better[0], fails=worse[1],
        judged_wrong=max(at_margin[4:6]), usual_wrong=max(at_margin[6:8]),
    )  # fmt: skip


def draws_of(
    kind: str, setting: Setting, difference: float, problems: int, replicates: int, rng: np.random.Generator
) -> Iterator[Draws]:
    """Yield draws of replicates, in batches of a bounded size."""
    at_once = max(1, ANSWERS_HELD // (problems * setting.samples))
    for start in range(0, replicates, at_once):
        runs = draw_runs(setting, difference, problems, min(at_once, replicates - start), rng)
        known, most = runs.baseline / runs.samples, (runs.baseline + runs.unknown_baseline) / runs.samples
        if kind == "anchor":
            lows, highs = runs.candidate_extremes()
            base = mean_of(setting.difficulty)
            yield Draws(lows - base, highs - base, -known, 1 - known, np.array([]), runs.samples, base)
        else:
            yield Draws(*runs.extremes(), -most, 1 - known, runs.true_changes.mean(axis=1), runs.samples, 0.0)


def decide_all(kind: str, draws: Draws, margin: float) -> Floats:
    """Return rows of 0 and 1, with one column per replicate: whether it passed, and whether it failed; then three pairs
    of rows: whether it passed and failed at all (for `benchmark`: wrongly) as the product decides, by the problems
    whose answers were all judged, and by the t-interval of these problems."""
    complete = draws.lows == draws.highs
    every = np.ones_like(complete)
    decide = decide_in_order if kind in get_args(Population) else decide_once
    passed, failed = decide(kind, draws, every, margin)
    judged = (passed, failed) if complete.all() else decide(kind, draws, complete, margin)
    pairs = [(passed, failed), judged, decide_as_usual(draws.lows, complete, margin)]
    if kind == "benchmark":
        # With this population the question is about these very problems, so each replicate has a different truth.
        below = draws.truth < margin - ROUNDING
        pairs = [(passes & below, fails & ~below) for passes, fails in pairs]
    return np.stack([passed, failed, *(column for pair in pairs for column in pair)]).astype(np.float64)


def decide_once(kind: str, draws: Draws, members: Mask, margin: float) -> Verdicts:
    """Return the decisions of a gate that is not sequential, many replicates at a time: a lower bound is at least the
    margin if the chance of a mean at most as large is at most the error (`chance_at_most`)."""
    problems = draws.lows.shape[1]
    half = problems // 2 if kind == "weighted datasets" else problems
    sizes = [half, problems - half] if kind == "weighted datasets" else [problems]
    shares = [weight / sum(WEIGHTS) for weight in WEIGHTS] if kind == "weighted datasets" else [1.0]
    scales = [share * problems / size for share, size in zip(shares, sizes, strict=True)]
    slices = [slice(0, half), slice(half, problems)][: len(sizes)]
    least, greatest = (-draws.base, 1 - draws.base) if kind == "anchor" else (-max(scales), max(scales))
    tallies = [tally(draws.lows, members, draws, scale, each) for scale, each in zip(scales, slices, strict=True)]
    tops = [tally(draws.highs, members, draws, scale, each) for scale, each in zip(scales, slices, strict=True)]
    passed = at_most(tallies, 1.0, least, margin - ROUNDING)
    failed = at_most(tops, -1.0, -greatest, -margin + ROUNDING)
    enough = members.sum(axis=1) >= MIN_PROBLEMS
    return passed & enough, failed & enough & ~passed


def tally(values: Floats, members: Mask, draws: Draws, scale: float, part: slice) -> tuple[Floats, Floats]:
    """Return the values that may occur among some problems, and how often each occurs, with one row per replicate."""
    count = draws.samples
    places = np.rint((values[:, part] + draws.base) * count).astype(np.int64) + count
    width = 2 * count + 1
    rows = np.arange(len(values))[:, np.newaxis] * width
    found = np.bincount((places + rows)[members[:, part]], minlength=len(values) * width).reshape(-1, width)
    return scale * (np.arange(-count, count + 1) / count - draws.base), found.astype(np.float64)


def at_most(tallies: list[tuple[Floats, Floats]], sign: float, least: float, mean: float) -> Mask:
    values = np.concatenate([sign * each for each, _ in tallies])
    counts = np.hstack([each for _, each in tallies])
    met = counts.any(axis=0)
    found: Mask = chance_at_most(values[met], counts[:, met], least, mean) <= ERROR
    return found


def decide_in_order(kind: str, draws: Draws, members: Mask, margin: float) -> Verdicts:
    """Return the decisions of a sequential gate that looks after every problem."""
    population: Population = "benchmark" if kind == "benchmark" else "similar"
    if members.all():
        values = Values(draws.lows, draws.highs, draws.floors, draws.ceilings, DIFFERENCE)
        after = count_until_decision(values, margin, population, ERROR)
    else:
        after = np.array([_decided(draws, row, kept, margin, population) for row, kept in enumerate(members)])
    return after > 0, after < 0


def _decided(draws: Draws, row: int, kept: Mask, margin: float, population: Population) -> int:
    columns = (draws.lows[row][kept], draws.highs[row][kept], draws.floors[row][kept], draws.ceilings[row][kept])
    return int(count_until_decision(Values(*columns, DIFFERENCE), margin, population, ERROR)) if kept.any() else 0


def decide_as_usual(values: Floats, members: Mask, margin: float) -> Verdicts:
    """Return the decisions by the t-interval of the mean over problems."""
    many = np.maximum(members.sum(axis=1), 2)
    mean = np.where(members, values, 0.0).sum(axis=1) / many
    spread = np.sqrt(np.where(members, (values - mean[:, np.newaxis]) ** 2, 0.0).sum(axis=1) / (many - 1))
    half = t.ppf(1 - ERROR, many - 1) * spread / np.sqrt(many)
    enough = many >= MIN_PROBLEMS
    return (mean - half >= margin - ROUNDING) & enough, (mean + half < margin - ROUNDING) & enough


def measure_interval(kind: str, setting: Setting, problems: int, replicates: int, rng: np.random.Generator) -> Cell:
    """Simulate an interval of one run, or of the difference of an amount. `passes`: how often there is an interval."""
    few = max(1, replicates // FEWER) if kind == "amount" or setting.samples > 1 else replicates
    missed = usual = found = 0
    for _ in range(few):
        truth, (low, high), values = interval_of(kind, setting, problems, rng)
        half = float(t.ppf(1 - ERROR, problems - 1) * values.std(ddof=1) / np.sqrt(problems))
        usual += kind != "percentile" and bool(abs(float(values.mean()) - truth) > half)
        found += low is not None or high is not None
        missed += (low is not None and low > truth) or (high is not None and high < truth)
    return Cell(
        kind=kind, samples=setting.samples, difficulty=setting.difficulty, change="", missing="", problems=problems,
        replicates=few, nominal=2 * ERROR, wrong=missed / few, passes=found / few, fails=0.0,
        judged_wrong=missed / few, usual_wrong=usual / few,
    )  # fmt: skip


def interval_of(
    kind: str, setting: Setting, problems: int, rng: np.random.Generator
) -> tuple[float, tuple[float | None, float | None], Floats]:
    """Draw a run. Return the truth, the product's interval, and the values that the interval describes."""
    every = np.ones(problems, dtype=np.bool_)
    if kind == "amount":
        before, after = (np.exp(SPREAD * rng.standard_normal(problems)) for _ in range(2))
        nothing = np.zeros(problems, dtype=np.int64)
        readings = [Readings(each, every, each, each, every, nothing, every) for each in (before, after)]
        found = compute_reading_differences({AMOUNT: PairedReadings(*readings)})[AMOUNT]
        return 0.0, (found.low, found.high), after - before
    sheet = MetricSet(clustered=setting.samples > 1)
    if kind == "percentile":
        seconds = np.exp(SPREAD * rng.standard_normal(problems))
        sheet.percentile("figure", seconds, every, PERCENTILE)
        truth = float(np.exp(SPREAD * norm.ppf(PERCENTILE / 100)))
        values = seconds
    else:
        runs = draw_runs(setting, 0.0, problems, 1, rng)
        tried = np.full(problems, setting.samples)
        sheet.share("figure", runs.candidate[0], tried, every)
        truth, values = mean_of(setting.difficulty), runs.candidate[0] / setting.samples
    figure = sheet.figures(int(rng.integers(1 << 30)))["figure"]
    return truth, (figure.low, figure.high), values


if __name__ == "__main__":
    sys.exit(main())
