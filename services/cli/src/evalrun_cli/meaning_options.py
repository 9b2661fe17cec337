"""Builds the options of the audit's comparison of meanings from the flags of `evalrun data audit`."""

import os
from dataclasses import replace
from pathlib import Path

import click

from evalrun_cli.pair_judge import EndpointPairJudge
from evalrun_data.governance.commands import MeaningOptions
from evalrun_generator.endpoints.base_url import base_url
from evalrun_generator.settings import openai_api_key
from evalrun_runtime.exits import BadInputError


def make_meaning_options(
    *,
    embedder: Path | None,
    min_cosine: float | None,
    pair_judge: str | None,
    pair_judge_model: str | None,
    judge_min_cosine: float | None,
    max_judged_pairs: int | None,
) -> MeaningOptions | None:
    """Return the options of the comparison of meanings; None: not wanted. A pair judge is asked a first question.

    Raises:
        UsageError: a flag lacks another flag that it needs.
        BadInputError: the pair judge cannot be used.
    """
    of_judge = {
        "--pair-judge-model": pair_judge_model,
        "--judge-min-cosine": judge_min_cosine,
        "--max-judged-pairs": max_judged_pairs,
    }
    if embedder is None:
        given = [name for name, value in {"--min-cosine": min_cosine, "--pair-judge": pair_judge, **of_judge}.items()
                 if value is not None]  # fmt: skip
        if given:
            raise click.UsageError(f"{given[0]}: needs --embedder, whose pairs it is about")
        return None
    if pair_judge is None and (given := [name for name, value in of_judge.items() if value is not None]):
        raise click.UsageError(f"{given[0]}: needs --pair-judge")
    if pair_judge is not None and pair_judge_model is None:
        raise click.UsageError("--pair-judge: needs --pair-judge-model, the name that its server lists")
    options = MeaningOptions(embedder)
    if min_cosine is not None:
        options = replace(options, min_cosine=min_cosine)
    if judge_min_cosine is not None:
        options = replace(options, judge_min_cosine=judge_min_cosine)
    if max_judged_pairs is not None:
        options = replace(options, max_judged_pairs=max_judged_pairs)
    if pair_judge is None or pair_judge_model is None:
        return options
    try:
        url = base_url(pair_judge)
    except BadInputError as error:
        raise BadInputError(f"--pair-judge: {error}") from error
    judge = EndpointPairJudge(url, pair_judge_model, _api_key())
    judge.try_question()
    return replace(options, judge=judge)


def _api_key() -> str | None:
    own = os.environ.get("EVALRUN_GENERATOR_API_KEY", "").strip()
    if own:
        return own
    general = openai_api_key()
    return None if general is None else general.get_secret_value()
