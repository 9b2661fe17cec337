"""Yields the ledger's samples as `SampleResult`s, ordered by problem, repeat and sample."""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Final

from evalrun_aggregator.ledger.entries import Exchange, StoredCompletion, StoredSample
from evalrun_aggregator.ledger.items import unpack_row
from evalrun_aggregator.start.datasets import RunDataset
from evalrun_aggregator.start.problems import RunProblems
from evalrun_aggregator.turns.policy import conversation
from evalrun_data.records import Message, Problem, Reference, StdioTests
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_results.samples import SampleResult

MODES: Final[Mapping[int, str]] = {
    judge_pb2.SUBMISSION_MODE_APPEND: "append",
    judge_pb2.SUBMISSION_MODE_STANDALONE: "standalone",
}
NO_ANSWER: Final = "no answer was given"
"""Reason why a sample has no verdict if completions are made elsewhere."""
NO_CHAT: Final[tuple[dict[str, str], ...]] = ()


class _Asked:
    """Facts about a problem that all of its samples share."""

    def __init__(self, dataset: RunDataset, problem: Problem) -> None:
        self.dataset = dataset.spec.name
        self.problem = problem
        self.truth = dict(encode_ground_truth(problem))
        self._dataset = dataset

    @cached_property
    def first(self) -> tuple[str, tuple[dict[str, str], ...]]:
        return self.sent(())

    @cached_property
    def _messages(self) -> Sequence[Message]:
        return self._dataset.messages(self.problem)

    def sent(self, exchanges: Sequence[Exchange]) -> tuple[str, tuple[dict[str, str], ...]]:
        """Return the prompt after these exchanges, as a text and as a chat's messages."""
        sent = conversation(self._messages, exchanges)
        is_chat = self._dataset.spec.prompt_format == "Chat"
        return prompt_text(sent), tuple(asdict(message) for message in sent) if is_chat else NO_CHAT


def sample_results(
    samples: Iterable[StoredSample], problems: RunProblems, asked_model: str, undecided: str = ""
) -> Iterator[SampleResult]:
    """Yield the results, with only one sample in memory at a time.

    Args:
        samples: samples in order of row.
        problems: the problems of the run.
        asked_model: the spec's model, for completions that do not name theirs.
        undecided: reason that is given for a sample that was neither judged nor given up.
    """
    position, asked = -1, None
    exchanges: list[Exchange] = []
    for completion, stored, feedback in samples:
        at, repeat, number, turn = unpack_row(completion.row)
        if asked is None or at != position:
            position, asked = at, _Asked(*problems.find_problem(at))
        problem = asked.problem
        made_elsewhere = completion.started_at == 0
        if made_elsewhere:
            prompt, messages = problem.prompt, NO_CHAT
        elif turn == 0:
            prompt, messages = asked.first
        else:
            prompt, messages = asked.sent(exchanges)
        if problems.items.turns > 1:
            exchanges = [*(exchanges if turn else ()), Exchange(completion.text, feedback)]
        yield SampleResult(
            dataset=asked.dataset,
            problem_id=problem.problem_id,
            sample=number,
            turn=turn,
            repeat=repeat,
            prompt=prompt,
            response=completion.text,
            ground_truth=asked.truth,
            difficulty=problem.difficulty,
            data_source=problem.data_source,
            tags=problem.tags,
            model=completion.model or asked_model,
            finish_reason=completion.finish_reason,
            prompt_tokens=completion.prompt_tokens,
            output_tokens=completion.output_tokens,
            gen_seconds=(completion.generation_seconds or None) if made_elsewhere else completion.generation_seconds,
            started_at=None if made_elsewhere else completion.started_at,
            judged_at=None if stored is None else stored.recorded_at,
            verdict=None if stored is None else judge_pb2.Verdict.FromString(stored.verdict),
            not_judged_reason=undecided if stored is None else "" if stored.judged else stored.reason,
            mode=MODES.get(completion.mode, "auto"),
            language=completion.language or problem.language,
            messages=messages,
            log_probs=completion.log_probs,
        )


def make_missing_sample(row: int) -> StoredSample:
    """Return the placeholder for a completion that was never generated or given."""
    return StoredSample(StoredCompletion(row, "", finish_reason="", output_tokens=0), None)


def prompt_text(messages: Sequence[Message]) -> str:
    """Return a prompt as text: the content of a single message, or each message under its role."""
    if len(messages) == 1:
        return messages[0].content
    return "\n\n".join(f"[{message.role}]\n{message.content}" for message in messages)


def encode_ground_truth(problem: Problem) -> Mapping[str, object]:
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
