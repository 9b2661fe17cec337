"""The ledger's samples as `SampleResult`s, in order of problem, pass and sample, one at a time."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from evalrun.judge.v1 import judge_pb2
from evalrun_aggregator.items import unpack_row
from evalrun_aggregator.problems import RunProblems
from evalrun_aggregator.results import SampleResult
from evalrun_aggregator.rows import StoredSample
from evalrun_data.records import Problem, StdioTests

MODES = {
    judge_pb2.SUBMISSION_MODE_APPEND: "append",
    judge_pb2.SUBMISSION_MODE_STANDALONE: "standalone",
}


def sample_results(samples: Iterable[StoredSample], problems: RunProblems, asked_model: str) -> Iterator[SampleResult]:
    """Give the results; holds one sample at a time.

    Args:
        samples: in order of row.
        problems: the run's.
        asked_model: the spec's, for completions of which nobody said what made them.
    """
    position, truth = -1, dict[str, object]()
    for sample in samples:
        parts = unpack_row(sample.completion.row)
        dataset, problem = problems.problem_at(parts.problem)
        if parts.problem != position:
            position, truth = parts.problem, dict(ground_truth_of(problem))
        completion, stored = sample.completion, sample.verdict
        made_elsewhere = completion.started_at == 0
        yield SampleResult(
            dataset=dataset.spec.name,
            problem_id=problem.problem_id,
            sample=parts.sample,
            turn=parts.turn,
            repeat=parts.repeat,
            prompt=problem.prompt,
            response=completion.text,
            ground_truth=truth,
            difficulty=problem.difficulty,
            model=completion.model or asked_model,
            finish_reason=completion.finish_reason,
            prompt_tokens=completion.prompt_tokens,
            output_tokens=completion.output_tokens,
            gen_seconds=(completion.generation_seconds or None) if made_elsewhere else completion.generation_seconds,
            started_at=None if made_elsewhere else completion.started_at,
            judged_at=None if stored is None else stored.recorded_at,
            verdict=None if stored is None else judge_pb2.Verdict.FromString(stored.verdict),
            not_judged_reason="" if stored is None or stored.judged else stored.reason,
            mode=MODES.get(judge_pb2.SubmissionMode.ValueType(completion.mode), "auto"),
            language=completion.language or problem.language,
        )


def ground_truth_of(problem: Problem) -> Mapping[str, object]:
    """Give the tests as the record holds them (evaluation.md section 2)."""
    truth = problem.ground_truth
    if isinstance(truth, StdioTests):
        return {"inputs": list(truth.inputs), "outputs": list(truth.outputs)}
    return dataclasses.asdict(truth)
