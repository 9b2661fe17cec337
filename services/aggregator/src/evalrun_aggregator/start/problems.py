"""Numbers the problems of a run, and turns them into prompts and judge requests."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from evalrun_aggregator.ledger.entries import Exchange, StoredCompletion
from evalrun_aggregator.ledger.items import DatasetItems, RunItems
from evalrun_aggregator.start.datasets import RunDataset
from evalrun_aggregator.turns.policy import TurnPolicy, conversation, make_turn_policy
from evalrun_api.run_config import EvalRunSpec, Protocol, RunConfig
from evalrun_client.grader import answer_request, answer_verdict
from evalrun_client.judge_request import Answer
from evalrun_data.records import Problem
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_proto.ledger.v1 import ledger_pb2
from evalrun_results.samples import JsonObject
from evalrun_results.sequential.order import order_problems

FORMATS = {"Chat": ledger_pb2.PROMPT_FORMAT_CHAT, "Completion": ledger_pb2.PROMPT_FORMAT_COMPLETION}


class RunProblems:
    """The problems of all datasets of a run."""

    def __init__(
        self,
        run: str,
        datasets: Sequence[RunDataset],
        protocol: Protocol,
        *,
        samples: int,
        repeats: int,
        turns: int = 1,
        by_chance: bool = False,
    ) -> None:
        """Number the problems.

        Args:
            run: name of the run, by which the judge shares its queue.
            datasets: the datasets in the spec's order.
            protocol: the protocol, which says how completions are generated.
            samples: samples per problem.
            repeats: number of repeats that measure the noise.
            turns: maximum number of completions per sample.
            by_chance: number each dataset's problems in the order that the protocol's seed draws, as sequential gates
                need. Otherwise in the order of the dataset.
        """
        self.datasets = datasets
        self._run = run
        self._protocol = protocol
        numbered = [_shuffle_problems(d, protocol.seed) if by_chance else d.problems for d in datasets]
        self._problems = [(d, each) for d, problems in zip(datasets, numbered, strict=True) for each in problems]
        self.items = RunItems(
            [
                DatasetItems(d.spec.name, [problem.problem_id for problem in problems])
                for d, problems in zip(datasets, numbered, strict=True)
            ],
            samples,
            repeats,
            turns,
        )

    def find_problem(self, position: int) -> tuple[RunDataset, Problem]:
        """Return the problem at a position."""
        return self._problems[position]

    def iter_prompts(self, first: int) -> Iterator[JsonObject]:
        """Yield the prompts of the problems from a position on, as a sample's first turn sends them."""
        for position in range(first, len(self._problems)):
            dataset, problem = self._problems[position]
            messages = [asdict(message) for message in dataset.messages(problem)]
            yield {"dataset": dataset.spec.name, "problem": problem.problem_id, "messages": [*messages]}

    def work_item(self, index: int, exchanges: Sequence[Exchange] = ()) -> ledger_pb2.WorkItem:
        """Return an item for a worker. It contains no tests, except those that the feedback of earlier turns shows.

        Args:
            index: index of the item.
            exchanges: the sample's earlier completions, with the feedback on each.
        """
        key = self.items.get_key(index)
        dataset, problem = self._problems[self.items.get_position(index)]
        protocol = self._protocol
        return ledger_pb2.WorkItem(
            key=ledger_pb2.WorkKey(
                dataset=key.dataset, problem_id=key.problem_id, sample=key.sample, turn=key.turn, repeat=key.repeat
            ),
            messages=[
                ledger_pb2.ChatMessage(role=message.role, content=message.content)
                for message in conversation(dataset.messages(problem), exchanges)
            ],
            format=FORMATS[dataset.spec.prompt_format],
            sampling=ledger_pb2.Sampling(
                temperature=protocol.temperature_value,
                top_p=protocol.top_p_value,
                max_tokens=protocol.max_new_tokens,
                seed=protocol.seed + key.sample,
                top_k=protocol.top_k,
                min_p=protocol.min_p_value,
                repetition_penalty=protocol.repetition_penalty_value,
                stop=protocol.stop,
                ignore_eos=protocol.ignore_eos,
                log_probs=protocol.calculate_log_probs,
            ),
        )

    def request(self, index: int, completion: StoredCompletion) -> judge_pb2.JudgeRequest:
        """Return the judge request for an item."""
        dataset, problem = self._problems[self.items.get_position(index)]
        request = answer_request(self._run, dataset.spec, problem, make_answer(completion), dataset.grader)
        request.fresh = self.items.get_key(index).repeat > 0
        return request

    def next_feedback(
        self, policies: Mapping[str, TurnPolicy], index: int, completion: StoredCompletion, verdict: judge_pb2.Verdict
    ) -> str:
        """Return the feedback that opens the next turn of an item's sample; empty if no turn follows.

        Args:
            policies: rules by dataset.
            index: index of the item.
            completion: completion of the item.
            verdict: verdict about the completion.
        """
        dataset, problem = self._problems[self.items.get_position(index)]
        decided = dataset.grader is not None and dataset.grader.decides(problem.data_source)
        ours = dataset.spec.judge_mode == "RunCode" and not decided
        policy = policies[dataset.spec.name]
        return policy.next_feedback(self.items.get_turn(index), problem, completion, verdict, ours=ours)

    def verdict(self, index: int, said: judge_pb2.Verdict) -> judge_pb2.Verdict:
        """Return the verdict about an item, from the judge's reply."""
        dataset, problem = self._problems[self.items.get_position(index)]
        return answer_verdict(problem, dataset.grader, said)


def _shuffle_problems(dataset: RunDataset, seed: int) -> list[Problem]:
    by_id = {problem.problem_id: problem for problem in dataset.problems}
    return [by_id[name] for name in order_problems(seed, dataset.spec.name, by_id)]


def draws_by_chance(order: RunConfig) -> bool:
    """Return whether a run draws its problems at random: a gate or a race may decide before all are judged."""
    return order.race_problems is not None or any(gate.sequential for gate in order.spec.gates)


def count_raced_problems(order: RunConfig, items: RunItems) -> dict[int, int]:
    """Return how many problems of each dataset a race has asked for so far, by the dataset's number, if not all."""
    wanted = order.race_problems
    if not wanted:
        return {}
    sizes = [len(each.problem_ids) for each in items.datasets]
    return {number: wanted for number, size in enumerate(sizes) if wanted < size}


def make_turn_policies(spec: EvalRunSpec) -> dict[str, TurnPolicy] | None:
    """Return the rules of further turns by dataset; None if the protocol has a single turn."""
    found = {each.name: policy for each in spec.datasets if (policy := make_turn_policy(spec, each)) is not None}
    return found or None


def make_answer(completion: StoredCompletion) -> Answer:
    """Convert a stored completion for the judge's client."""
    return Answer(
        text=completion.text,
        mode=judge_pb2.SubmissionMode.ValueType(completion.mode or judge_pb2.SUBMISSION_MODE_AUTO),
        language=completion.language,
        truncated=completion.finish_reason == "length",
    )
