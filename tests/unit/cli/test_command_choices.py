"""What the flags offer is what the EvalRun's API takes."""

from typing import get_args

from evalrun_api.v1alpha1 import Comparator
from evalrun_cli.commands import COMPARATORS


def test_the_comparators_are_the_apis() -> None:
    assert get_args(Comparator.model_fields["name"].annotation) == COMPARATORS
