"""Of 1,000 rows 50 are odd: the others get their exact rewards, and each odd one stands alone without a reward."""

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from builders.other_interpreter import ask_script
from builders.reward.odd_rows import (
    ANSWERS,
    EVERY,
    ODD,
    TRUTHS,
    UNWRITABLE_ANSWERS,
    UNWRITABLE_TRUTHS,
    Row,
    mixed,
    odd_rows,
    of_exact,
    of_odd,
)
from builders.reward.service import post
from builders.reward.stack import reward_stack

from evalrun_cli.reward_check.answers import Answer, make_answers
from evalrun_trainers.client import InvalidSampleError, RewardClient
from evalrun_trainers.options import Options
from evalrun_trainers.samples import make_sample
from evalrun_trainers.trl_reward import code_reward, code_reward_async
from evalrun_trainers.verl_reward import compute_score_async

pytestmark = pytest.mark.timeout(900)

REMEMBERS = ("--cache-mib", "64")
"""The faces are what is tested: the judge runs each program once."""
EXACT: Sequence[Answer] = make_answers(190) * ((EVERY - 1) * ODD // 190)
ROWS: Sequence[Row] = [answer.row() for answer in EXACT]
WANTED = [answer.reward for answer in EXACT]
USUAL_TRUTH = EXACT[0].ground_truth
ANYTHING = mixed(
    ROWS,
    odd_rows(
        [*TRUTHS.values(), *UNWRITABLE_TRUTHS.values()], [*ANSWERS.values(), *UNWRITABLE_ANSWERS.values()], USUAL_TRUTH
    ),
)
WRITABLE = mixed(ROWS, odd_rows(list(TRUTHS.values()), list(ANSWERS.values()), USUAL_TRUTH))


def columns_of(rows: Sequence[Row]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in ("data_source", "ground_truth")}


async def test_odd_rows_cost_no_other_row_its_reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with reward_stack(tmp_path, judge_arguments=REMEMBERS) as (service,):
        samples = [make_sample(row["data_source"], row["solution"], row["ground_truth"]) for row in WRITABLE]
        status, body, _ = await post(service.address, "/v1/rewards", {"samples": samples})
        assert (status, body["judged"], body["not_judged"], body["invalid"]) == (200, 950, 0, 50)
        assert of_exact([result["reward"] for result in body["results"]]) == WANTED

        client = RewardClient(Options(url=service.address))
        samples = [make_sample(row["data_source"], row["solution"], row["ground_truth"]) for row in ANYTHING]
        results = await asyncio.to_thread(client.results, samples)
        assert of_exact([result["reward"] for result in results]) == WANTED
        assert {(result["outcome"], result["reward"]) for result in of_odd(results)} == {("invalid", None)}
        assert client.counts == {"judged": 950, "invalid": 50}

        asked = [
            compute_score_async(row["data_source"], row["solution"], row["ground_truth"], url=service.address)
            for row in ANYTHING
        ]
        scores = await asyncio.gather(*asked, return_exceptions=True)
        assert [score["score"] for score in of_exact(scores)] == WANTED
        assert {type(error) for error in of_odd(scores)} == {InvalidSampleError}

        monkeypatch.setenv("EVALRUN_REWARD_URL", service.address)
        answers, columns = [row["solution"] for row in ANYTHING], columns_of(ANYTHING)
        with pytest.raises(InvalidSampleError):
            await code_reward_async(["p"] * len(answers), answers, **columns)
        monkeypatch.setenv("EVALRUN_REWARD_ON_INVALID", "nan")
        rewards = await asyncio.to_thread(code_reward, ["p"] * len(answers), answers, **columns)
        assert of_exact(rewards) == WANTED
        assert of_odd(rewards) == [None] * ODD


async def test_odd_row_in_a_separate_request_is_invalid_too(tmp_path: Path) -> None:
    async with reward_stack(tmp_path) as (service,):
        client = RewardClient(Options(url=service.address, max_batch=1))
        odd = [row for row in ANYTHING if row not in ROWS]
        samples = [make_sample(row["data_source"], row["solution"], row["ground_truth"]) for row in odd]
        results = await asyncio.to_thread(client.results, samples)
    assert {result["outcome"] for result in results} == {"invalid"}


async def asked_in(python: str | Path, trainer: str, directory: Path) -> list[float | None]:
    async with reward_stack(directory, judge_arguments=REMEMBERS) as (service,):
        asked = {"url": service.address, "trainer": trainer, "rows": ROWS}
        rewards: list[float | None] = await ask_script(
            python, "reward/odd_rows_side.py", json.loads(json.dumps(asked)), HF_HUB_OFFLINE="1"
        )
    return rewards


async def test_odd_rows_in_verl_cost_no_other_row_its_reward(gen_cpu: Path, tmp_path: Path) -> None:
    rewards = await asked_in(gen_cpu, "verl", tmp_path)
    assert of_exact(rewards) == WANTED
    assert of_odd(rewards) == [None] * ODD


async def test_odd_rows_in_trl_cost_no_other_row_its_reward(tmp_path: Path) -> None:
    python = os.environ.get("EVALRUN_TEST_TRAINERS_PYTHON")
    if not python:
        pytest.skip("EVALRUN_TEST_TRAINERS_PYTHON names no interpreter with trl (docs/testing.md)")
    rewards = await asked_in(python, "trl", tmp_path)
    assert of_exact(rewards) == WANTED
    assert of_odd(rewards) == [None] * ODD
