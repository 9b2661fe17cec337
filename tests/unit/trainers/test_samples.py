"""Rows of trainers as samples, and results as what they log."""

import math
from pathlib import Path

import pytest

from evalrun_trainers.client import InvalidSampleError, NotJudgedError, choose_reward
from evalrun_trainers.options import Options
from evalrun_trainers.samples import make_log_entry, make_sample
from evalrun_trainers.trl_reward import extract_text, make_samples

JUDGED = {"outcome": "judged", "reward": 0.5, "accepted": False, "pass_ratio": 0.5, "f2p_count": 1, "f2p_total": 2,
          "codes": [True, -2], "final_status": "runtime_error", "assumed_timeouts": 0}  # fmt: skip
UNKNOWN = {"outcome": "not_judged", "reward": None, "reason": "no sandbox"}
INVALID = {"outcome": "invalid", "reward": None, "reason": "no tests"}


def test_make_sample_reads_a_verl_row() -> None:
    extra = {"language": "cpp", "truncated": True, "problem_prompt": "Echo.", "index": 3}
    assert make_sample("codecontests", "x", {"inputs": []}, extra) == {
        "response": "x", "data_source": "codecontests", "ground_truth": {"inputs": []}, "language": "cpp",
        "truncated": True, "prompt": "Echo.", "extra_info": extra,
    }  # fmt: skip


def test_extra_info_reaches_a_grader_as_json_can_hold_it() -> None:
    class Array:  # numpy's arrays and scalars have this method
        def tolist(self) -> list[float]:
            return [1.0, math.nan]

    extra = {"index": 3, "weights": Array(), "loss": math.inf, "nested": ({"a": None},), "at": Path("x")}
    assert make_sample("gsm8k", "x", "4", extra)["extra_info"] == {
        "index": 3, "weights": [1.0, None], "loss": None, "nested": [{"a": None}], "at": "x",
    }  # fmt: skip
    assert "extra_info" not in make_sample("gsm8k", "x", "4")


def test_log_entry_has_the_same_scalar_keys_for_every_outcome() -> None:
    known, unknown = make_log_entry(JUDGED, 0.5), make_log_entry(UNKNOWN, -1.0)
    assert known.keys() == unknown.keys()
    assert all(isinstance(value, float | str) for row in (known, unknown) for value in row.values())
    assert (known["score"], known["acc"], known["judged"], known["codes"]) == (0.5, 0.0, 1.0, "True,-2")
    assert (unknown["score"], unknown["judged"], unknown["final_status"]) == (-1.0, 0.0, "not_judged")
    assert math.isnan(unknown["pass_ratio"])


def test_choose_reward_uses_the_configured_value_or_raises_without_a_reward() -> None:
    assert choose_reward(JUDGED, Options()) == 0.5
    assert choose_reward(UNKNOWN, Options(on_not_judged=-1.0)) == -1.0
    assert math.isnan(choose_reward(UNKNOWN, Options(on_not_judged=math.nan)))
    with pytest.raises(NotJudgedError, match="no sandbox"):
        choose_reward(UNKNOWN, Options())
    with pytest.raises(InvalidSampleError, match="no tests"):
        choose_reward(INVALID, Options(on_not_judged=0.0))
    assert math.isnan(choose_reward(INVALID, Options(on_invalid=math.nan)))
    with pytest.raises(NotJudgedError, match="no sandbox"):
        choose_reward(UNKNOWN, Options(on_invalid=0.0))


def test_make_samples_reads_trl_columns() -> None:
    chat = [{"role": "assistant", "content": "y"}]
    columns = {"ground_truth": ["t1", "t2"], "data_source": ["a", "b"], "trainer_state": object()}
    first, second = make_samples(["p", [{"role": "user", "content": "q"}]], ["x", chat], columns)
    assert (first["prompt"], first["response"], first["ground_truth"], first["data_source"]) == ("p", "x", "t1", "a")
    assert (second["response"], "prompt" in second) == ("y", False)
    (third,) = make_samples(["p"], ["x"], {"reward_model": [{"ground_truth": "t"}]})
    assert third["ground_truth"] == "t"
    with pytest.raises(InvalidSampleError, match="no column ground_truth"):
        make_samples(["p"], ["x"], {})


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("x", "x"), ([], ""), ([{"role": "assistant", "content": None}], ""), (None, None), (3, 3), (["x"], ["x"]),
        ([{"content": ["x"]}], ["x"]),
    ],
)  # fmt: skip
def test_a_completion_that_is_no_text_is_never_an_empty_answer(completion: object, text: object) -> None:
    assert extract_text(completion) == text


def test_rows_of_wrong_types_are_passed_on_for_the_service_to_refuse() -> None:
    assert make_sample("d", "x", "t", [1])["extra_info"] == [1]  # type: ignore[arg-type]
    columns = {"reward_model": [None, 3, {"ground_truth": "t"}], "extra_info": [{"index": 1}, "odd", None]}
    none, number, given = make_samples(["p"] * 3, ["x"] * 3, columns)
    assert [sample["ground_truth"] for sample in (none, number, given)] == [None, None, "t"]
    assert (none["extra_info"], number["extra_info"]) == ({"problem_prompt": "p", "index": 1}, "odd")
