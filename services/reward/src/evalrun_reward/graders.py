"""Scores samples with graders: which samples, the program to run, and the result. Pure except for `load_graders`."""

from collections.abc import Mapping, Sequence

from evalrun_api.v1alpha1 import Dataset
from evalrun_client.grader import (
    Grader,
    grader_request,
    make_graded_verdict,
    read_grader,
    render_grader_input,
    verls_grader,
)
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_reward.judge_calls import ProblemRequest
from evalrun_reward.rewards import explain_no_reward
from evalrun_reward.wire import Outcome, Result, Sample
from evalrun_runtime.exits import BadInputError

VERLS = "builtin:verl"
ANY = "*"
"""Stands for every data source without a grader of its own."""


class Graders:
    """Graders by the data source whose answers they score."""

    def __init__(self, graders: Mapping[str, Grader]) -> None:
        self._graders = graders

    def of(self, sample: Sample) -> Grader | None:
        """Return the grader of a sample's data source; None if the judge's tests decide."""
        source = sample.data_source or sample.dataset
        grader = self._graders.get(source) or (self._graders.get(ANY) if sample.data_source else None)
        return grader if grader is not None and grader.decides(source) else None


def load_graders(given: Sequence[str]) -> Graders:
    """Read the graders of `DATA_SOURCE=FILE` texts. Raises BadInputError."""
    graders: dict[str, Grader] = {}
    for text in given:
        source, equals, file = text.rpartition("=")
        if not equals or not source or not file:
            raise BadInputError(f"--grader {text}: write DATA_SOURCE=FILE, e.g. openai/gsm8k=gsm8k.py")
        if source in graders:
            raise BadInputError(f"--grader {text}: {source} has a grader already")
        try:
            graders[source] = verls_grader(source) if file == VERLS else read_grader(source, file)
        except BadInputError as error:
            raise BadInputError(f"--grader {text}: {error}") from error
    return Graders(graders)


def make_grader_request(grader: Grader, sample: Sample, ground_truth: object, judging: Dataset) -> ProblemRequest:
    """Return the grader's run for a sample: the answer is its input, and no candidate's program runs.

    Args:
        grader: the grader of the sample's data source.
        sample: the sample to grade.
        ground_truth: the ground truth as the sample holds it.
        judging: judging options, whose limits apply.
    """
    source = sample.data_source or sample.dataset
    given = render_grader_input(source, sample.response, ground_truth, sample.extra_info)
    request = grader_request("", judging, grader, given)
    return ProblemRequest(request, None, request.ByteSize())


def make_grader_result(sample_id: str, grader: Grader, verdict: judge_pb2.Verdict) -> Result:
    """Return the result of a grader's run. Without a score the sample is not judged, with the reason."""
    graded = make_graded_verdict(grader, verdict)
    if not graded.judged:
        return Result(id=sample_id, outcome=Outcome.NOT_JUDGED, reason=explain_no_reward(graded))
    return Result(
        id=sample_id,
        outcome=Outcome.JUDGED,
        reward=graded.score,
        accepted=graded.accepted,
        final_status="graded",
        cached=graded.cached,
    )
