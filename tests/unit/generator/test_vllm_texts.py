"""The texts by which servers without OpenAI's fields say that a model is not served."""

import pytest

from evalrun_generator.endpoints.vllm_texts import says_model_is_missing


@pytest.mark.parametrize(
    ("message", "missing"),
    [
        ("The model `x` does not exist.", True),
        ('model "x" not found, try pulling it first', True),
        ("no completion is recorded for problem p", False),
        ("problem p does not exist", False),
    ],
)
def test_says_model_is_missing_reads_the_message(message: str, missing: bool) -> None:
    assert says_model_is_missing(message) is missing
