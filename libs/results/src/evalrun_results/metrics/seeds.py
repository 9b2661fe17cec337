"""Figures of a run that drew its answers with several seeds: each seed's value, their mean and deviation. Pure."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from evalrun_results.samples import JsonObject


def seed_figures(seeds: Sequence[Mapping[str, float]]) -> JsonObject:
    """Return the entry `by_seed` of a dataset; empty where there are fewer than two seeds.

    Args:
        seeds: figures of each seed. A metric that a seed lacks, because nothing was judged for it, is left out for all
            seeds.
    """
    if len(seeds) < 2:
        return {}
    shared = [name for name in seeds[0] if all(name in seed for seed in seeds)]
    figures: JsonObject = {name: _figure([seed[name] for seed in seeds]) for name in shared}
    return {"by_seed": {"seeds": len(seeds), "metrics": figures}}


def _figure(values: Sequence[float]) -> JsonObject:
    """Return the values with their mean and their sample standard deviation."""
    return {"values": list(values), "mean": fmean(values), "deviation": stdev(values)}
