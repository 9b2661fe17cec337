"""The ledger's samples as `SampleResult`s, in order of problem, pass and sample, one at a time."""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict

from evalrun.judge.v1 import judge_pb2
from evalrun_aggregator.ledger.entries import Exchange, StoredSample
from evalrun_aggregator.ledger.items import unpack_row
from evalrun_aggregator.start.problems import RunProblems
from evalrun_aggregator.turns.policy import conversation
from evalrun_data.records import Message, Problem, Reference, StdioTests
from evalrun_results.samples import SampleResult

MODES = {
    judge_pb2.SUBMISSION_MODE_APPEND: "append",
    judge_pb2.SUBMISSION_MODE_STANDALONE: "standalone",
}


def sample_results(
    samples: Iterable[StoredSample], problems: RunProblems, asked_model: str, undecided: str = ""
) -> Iterator[SampleResult]:
    """Return the results; holds one sample at a time.

    Args:
        samples: in order of row.
        problems: the run's.
        asked_model: the spec's model, for completions that do not name theirs.
        undecided: why a sample has no verdict that was neither judged nor given up.
    """
    position, truth = -1, dict[str, object]()
    exchanges: list[Exchange] = []
    for sample in samples:
        parts = unpack_row(sample.completion.row)
        if parts.turn == 0:
            exchanges = []
        dataset, problem = problems.problem_at(parts.problem)
        if parts.problem != position:
            position, truth = parts.problem, dict(ground_truth_of(problem))
        completion, stored = sample.completion, sample.verdict
        made_elsewhere = completion.started_at == 0
        sent = () if made_elsewhere else tuple(conversation(dataset.messages(problem), exchanges))
        exchanges.append(Exchange(completion.text, sample.feedback))
        yield SampleResult(
            dataset=dataset.spec.name,
            problem_id=problem.problem_id,
            sample=parts.sample,
            turn=parts.turn,
            repeat=parts.repeat,
            prompt=prompt_text(sent) if sent else problem.prompt,
            response=completion.text,
            ground_truth=truth,
            difficulty=problem.difficulty,
            data_source=problem.data_source,
            model=completion.model or asked_model,
            finish_reason=completion.finish_reason,
            prompt_tokens=completion.prompt_tokens,
            output_tokens=completion.output_tokens,
            gen_seconds=(completion.generation_seconds or None) if made_elsewhere else completion.generation_seconds,
            started_at=None if made_elsewhere else completion.started_at,
            judged_at=None if stored is None else stored.recorded_at,
            verdict=None if stored is None else judge_pb2.Verdict.FromString(stored.verdict),
            not_judged_reason=undecided if stored is None else "" if stored.judged else stored.reason,
            mode=MODES.get(judge_pb2.SubmissionMode.ValueType(completion.mode), "auto"),
            language=completion.language or problem.language,
            messages=tuple(asdict(message) for message in sent) if dataset.spec.prompt_format == "Chat" else (),
        )


def prompt_text(messages: Sequence[Message]) -> str:
    """Return a prompt as one text: the only message's content, or each message under its role."""
    if len(messages) == 1:
        return messages[0].content
    return "\n\n".join(f"[{message.role}]\n{message.content}" for message in messages)


def ground_truth_of(problem: Problem) -> Mapping[str, object]:
    """Return the tests as the record holds them (docs/data-formats.md)."""
    truth = problem.ground_truth
    if isinstance(truth, Reference):
        return {"ground_truth": json.loads(truth.ground_truth), "extra_info": json.loads(truth.extra_info)}
    if isinstance(truth, StdioTests):
        fields: dict[str, object] = {
            "inputs": list(truth.inputs),
            "outputs": list(truth.outputs),
            "prelude": truth.prelude,
        }
    else:
        fields = dataclasses.asdict(truth)
    return {name: value for name, value in fields.items() if name != "prelude" or value}
