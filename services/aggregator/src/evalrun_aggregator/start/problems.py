"""The problems of a run: loaded, cut to what the spec uses, numbered, and turned into prompts and judge requests."""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from evalrun.judge.v1 import judge_pb2
from evalrun.ledger.v1 import ledger_pb2
from evalrun_aggregator.ledger.entries import Exchange, StoredCompletion
from evalrun_aggregator.ledger.items import DatasetItems, RunItems
from evalrun_aggregator.turns.policy import TurnPolicy, conversation, turn_policy_of
from evalrun_api.work_order import Dataset, EvalRunSpec, Protocol
from evalrun_client.grader import Grader, answer_request, answer_verdict, grader_of
from evalrun_client.judge_request import Answer
from evalrun_client.submit_mode import with_rows, with_tests
from evalrun_data.digest import digest_records
from evalrun_data.governance.run_audit import DatasetAudit, audit_dataset, role_of
from evalrun_data.prompts import read_template, render
from evalrun_data.readers import iter_problems, merged
from evalrun_data.records import TEST_GROUPS, Message, Problem
from evalrun_results.comparisons.roles import refusal_for_role
from evalrun_results.sequential.order import drawing_order
from evalrun_runtime.exits import BadInputError

FORMATS = {"Chat": ledger_pb2.PROMPT_FORMAT_CHAT, "Completion": ledger_pb2.PROMPT_FORMAT_COMPLETION}


@dataclass(frozen=True)
class RunDataset:
    """A dataset's spec with its problems, cut to what the run uses."""

    spec: Dataset
    problems: Sequence[Problem]
    audit: DatasetAudit | None = None
    role: str = ""
    """Its role: train, dev or test; empty if unknown."""
    template: str | None = None
    """Text of the file that `promptTemplate` names."""
    grader: Grader | None = None
    """Grader that scores its answers; None if their tests decide."""
    excluded: Sequence[Problem] = ()
    """Problems left out by `excludeProblems`: answers made elsewhere may be to these."""

    @cached_property
    def prompts_sha256(self) -> str:
        """Digest of what the model sees: a resumed run must see the same."""
        own = [] if self.spec.system_prompt is None else [self.spec.system_prompt]
        own += [] if self.template is None else ["template", self.template]
        return digest_records([problem.problem_id, problem.prompt, *own] for problem in self.problems)

    def messages(self, problem: Problem) -> list[Message]:
        """Return what is sent for one of its problems."""
        return render(problem, self.spec.prompt_format, self.spec.system_prompt, self.template)

    @cached_property
    def records_sha256(self) -> str:
        """Digest of what is judged, tests included. Role and date are no part of that."""
        return digest_records(map(_judged_fields, self.problems))


def _judged_fields(problem: Problem) -> dict[str, object]:
    """Return what a verdict depends on. An absent prelude is omitted, so digests of earlier versions stay valid."""
    fields = {name: value for name, value in dataclasses.asdict(problem).items() if name not in {"role", "date"}}
    if not fields["ground_truth"].get("prelude", True):
        del fields["ground_truth"]["prelude"]
    return fields


class RunProblems:
    """The problems of every dataset of a run."""

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
            run: the run's name, which the judge shares its queue by.
            datasets: in the spec's order.
            protocol: how answers are drawn.
            samples: answers a problem.
            repeats: noise-floor passes.
            turns: answers a sample, at most.
            by_chance: number each dataset's problems in the order that the protocol's seed draws: what sequential gates
                need. Else as they stand in the dataset.
        """
        self.datasets = datasets
        self._run = run
        self._protocol = protocol
        numbered = [_by_chance(d, protocol.seed) if by_chance else d.problems for d in datasets]
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

    def problem_at(self, position: int) -> tuple[RunDataset, Problem]:
        """Return the problem at a position."""
        return self._problems[position]

    def work_item(self, index: int, exchanges: Sequence[Exchange] = ()) -> ledger_pb2.WorkItem:
        """Return what a worker gets of an item: of tests nothing but what the feedback of earlier turns shows.

        Args:
            index: of the item.
            exchanges: the sample's earlier answers, with the feedback on each.
        """
        key = self.items.key_of(index)
        dataset, problem = self._problems[self.items.position_of(index)]
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
            ),
        )

    def request(self, index: int, completion: StoredCompletion) -> judge_pb2.JudgeRequest:
        """Return what the judge is asked about an item."""
        dataset, problem = self._problems[self.items.position_of(index)]
        request = answer_request(self._run, dataset.spec, problem, answer_of(completion), dataset.grader)
        request.fresh = self.items.key_of(index).repeat > 0
        return request

    def next_feedback(
        self, policies: Mapping[str, TurnPolicy], index: int, completion: StoredCompletion, verdict: judge_pb2.Verdict
    ) -> str:
        """Return what opens the next turn of an item's sample; empty if none opens.

        Args:
            policies: by dataset.
            index: of the item.
            completion: its answer.
            verdict: on it.
        """
        dataset, problem = self._problems[self.items.position_of(index)]
        decided = dataset.grader is not None and dataset.grader.decides(problem.data_source)
        ours = dataset.spec.judge_mode == "RunCode" and not decided
        policy = policies[dataset.spec.name]
        return policy.next_feedback(self.items.turn_of(index), problem, completion, verdict, ours=ours)

    def verdict(self, index: int, said: judge_pb2.Verdict) -> judge_pb2.Verdict:
        """Return the verdict on an item, from what the judge said to its request."""
        dataset, problem = self._problems[self.items.position_of(index)]
        return answer_verdict(problem, dataset.grader, said)


def _by_chance(dataset: RunDataset, seed: int) -> list[Problem]:
    by_id = {problem.problem_id: problem for problem in dataset.problems}
    return [by_id[name] for name in drawing_order(seed, dataset.spec.name, by_id)]


def draws_by_chance(spec: EvalRunSpec) -> bool:
    """Return whether a run draws its problems in an order of chance: where a gate decides before all are there."""
    return any(gate.sequential for gate in spec.all_gates)


def turn_policies_of(spec: EvalRunSpec) -> dict[str, TurnPolicy] | None:
    """Return the rules of further turns by dataset; None where the protocol draws single answers."""
    found = {each.name: policy for each in spec.datasets if (policy := turn_policy_of(spec, each)) is not None}
    return found or None


def answer_of(completion: StoredCompletion) -> Answer:
    """Return a stored completion as the judge's client takes it."""
    return Answer(
        text=completion.text,
        mode=judge_pb2.SubmissionMode.ValueType(completion.mode or judge_pb2.SUBMISSION_MODE_AUTO),
        language=completion.language,
        truncated=completion.finish_reason == "length",
    )


def check_supported(spec: EvalRunSpec) -> None:
    """Refuse what the schema lets pass and no run can do. Raises BadInputError."""
    for index, dataset in enumerate(spec.datasets):
        if dataset.judge_mode == "Submit" and set(dataset.tests) != set(TEST_GROUPS):
            raise BadInputError(
                f"spec.datasets[{index}].tests: with judgeMode: Submit the server uses its own tests: remove "
                f"tests, or write judgeMode: RunCode ({dataset.name})"
            )
    if not spec.datasets:
        raise BadInputError("spec.datasets: nothing to evaluate: list at least one dataset")


def load_datasets(spec: EvalRunSpec, base_dir: Path, more: Mapping[str, Sequence[str]]) -> list[RunDataset]:
    """Load every dataset of a spec, cut to the problems and tests that it uses.

    Args:
        spec: a run's.
        base_dir: what relative sources are relative to.
        more: further sources of a dataset, by its name.

    Raises:
        BadInputError: a source cannot be used, two say something else of one problem, a dataset's audit failed, or a
            gate uses test data.
    """
    datasets = []
    for index, dataset in enumerate(spec.datasets):
        # All groups: nothing is left out, and sources that do not say which group a test is in are fine.
        tests = () if set(dataset.tests) == set(TEST_GROUPS) else dataset.tests
        sources = [dataset.source, *more.get(dataset.name, ())]
        grader = grader_of(dataset, base_dir)
        graded = None if grader is None else grader.decides
        each = [
            (source, iter_problems(source, dataset.name, base_dir, tests=tests, graded=graded)) for source in sources
        ]
        problems = merged(each) if len(each) > 1 else each[0][1]
        ready = with_rows if dataset.judge_mode == "Submit" else with_tests
        used, excluded = list[Problem](), dict[str, Problem]()
        stream = _keeping(ready(problems, dataset.source), used, excluded, dataset)
        audit = audit_dataset(
            dataset.name,
            dataset.source,
            stream,
            manifest=dataset.manifest,
            policy=dataset.audit_policy,
            base_dir=base_dir,
            all_tests=not tests and grader is None,
        )
        if audit is None:  # nothing was read for its sake
            while (len(excluded) < len(dataset.exclude_problems) or len(used) != dataset.max_problems) and next(
                stream, None
            ) is not None:
                pass
        missing = set(dataset.exclude_problems) - set(excluded)
        _check_exclusions(dataset, f"spec.datasets[{index}].excludeProblems", missing, used)
        role = role_of(dataset.name, dataset.role, audit, used)
        template = None if dataset.prompt_template is None else read_template(dataset.prompt_template, base_dir)
        datasets.append(RunDataset(dataset, used, audit, role, template, grader, [*excluded.values()]))
    _check_gate(spec, datasets)
    return datasets


def _keeping(
    problems: Iterable[Problem], kept: list[Problem], excluded: dict[str, Problem], dataset: Dataset
) -> Iterator[Problem]:
    """Yield every problem and keep the first ones: an audit sees all, the run holds what it uses.

    Args:
        problems: all of the source's.
        kept: gets those that the run uses.
        excluded: gets those that are left out, by id.
        dataset: says which and how many are used.
    """
    left_out = frozenset(dataset.exclude_problems)
    for problem in problems:
        if problem.problem_id in left_out:
            excluded[problem.problem_id] = problem
        elif dataset.max_problems is None or len(kept) < dataset.max_problems:
            kept.append(problem)
        yield problem


def _check_exclusions(dataset: Dataset, field: str, missing: Collection[str], used: Sequence[Problem]) -> None:
    """Refuse an exclusion that would do nothing, or leave nothing. Raises BadInputError."""
    if missing:
        names = ", ".join(repr(name) for name in sorted(missing)[:5])
        raise BadInputError(f"{field}: {dataset.source} has no problem {names}: correct the id, or remove it")
    if not used:
        raise BadInputError(f"{field}: all problems of {dataset.name} are excluded: keep some, or remove the dataset")


def _check_gate(spec: EvalRunSpec, datasets: Sequence[RunDataset]) -> None:
    """Refuse a gate on test data that the gate does not allow by name. Raises BadInputError."""
    roles = {dataset.spec.name: dataset.role for dataset in datasets}
    for gate in spec.all_gates:
        for name in gate.dataset_names:
            if refusal := refusal_for_role(gate, name, roles.get(name, "")):
                raise BadInputError(f"spec.gate.dataset: {refusal}")
