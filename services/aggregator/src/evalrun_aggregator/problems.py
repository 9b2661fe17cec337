"""The problems of a run: loaded, cut to what the spec uses, numbered, and turned into prompts and judge requests."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

from evalrun.judge.v1 import judge_pb2
from evalrun.ledger.v1 import ledger_pb2
from evalrun_aggregator.digest import digest_records
from evalrun_aggregator.items import DatasetItems, RunItems
from evalrun_aggregator.rows import StoredCompletion
from evalrun_aggregator.submission import judge_request
from evalrun_aggregator.submit_mode import with_rows, with_tests
from evalrun_data.prompts import render
from evalrun_data.readers import iter_problems, merged
from evalrun_data.records import TEST_GROUPS, Problem
from evalrun_operator.api.v1alpha1 import Dataset, EvalRunSpec, Protocol
from evalrun_runtime.exits import BadInputError

FORMATS = {"Chat": ledger_pb2.PROMPT_FORMAT_CHAT, "Completion": ledger_pb2.PROMPT_FORMAT_COMPLETION}


@dataclass(frozen=True)
class RunDataset:
    """A dataset's spec with its problems, cut to what the run uses."""

    spec: Dataset
    problems: Sequence[Problem]

    @cached_property
    def prompts_sha256(self) -> str:
        """Digest of what the model sees: a resumed run must see the same."""
        return digest_records([problem.problem_id, problem.prompt] for problem in self.problems)

    @cached_property
    def records_sha256(self) -> str:
        """Digest of the records, tests included: the dataset's manifest hash of run_info."""
        return digest_records(dataclasses.asdict(problem) for problem in self.problems)


class RunProblems:
    """The problems of every dataset of a run."""

    def __init__(
        self, run: str, datasets: Sequence[RunDataset], protocol: Protocol, *, samples: int, repeats: int
    ) -> None:
        """Number the problems.

        Args:
            run: the run's name, which the judge shares its queue by.
            datasets: in the spec's order.
            protocol: how answers are drawn.
            samples: answers a problem.
            repeats: noise-floor passes.
        """
        self.datasets = datasets
        self._run = run
        self._protocol = protocol
        self._problems = [(dataset, problem) for dataset in datasets for problem in dataset.problems]
        self.items = RunItems(
            [DatasetItems(d.spec.name, [problem.problem_id for problem in d.problems]) for d in datasets],
            samples,
            repeats,
        )

    def problem_at(self, position: int) -> tuple[RunDataset, Problem]:
        """Give the problem at a position."""
        return self._problems[position]

    def work_item(self, index: int) -> ledger_pb2.WorkItem:
        """Give what a worker gets of an item: never a test or an expected output."""
        key = self.items.key_of(index)
        dataset, problem = self._problems[self.items.position_of(index)]
        protocol = self._protocol
        return ledger_pb2.WorkItem(
            key=ledger_pb2.WorkKey(
                dataset=key.dataset, problem_id=key.problem_id, sample=key.sample, turn=key.turn, repeat=key.repeat
            ),
            messages=[
                ledger_pb2.ChatMessage(role=message.role, content=message.content)
                for message in render(problem, dataset.spec.prompt_format)
            ],
            format=FORMATS[dataset.spec.prompt_format],
            sampling=ledger_pb2.Sampling(
                temperature=protocol.temperature_value,
                top_p=protocol.top_p_value,
                max_tokens=protocol.max_new_tokens,
                seed=protocol.seed + key.sample,
            ),
        )

    def request(self, index: int, completion: StoredCompletion) -> judge_pb2.JudgeRequest:
        """Give what the judge is asked about an item."""
        dataset, problem = self._problems[self.items.position_of(index)]
        request = judge_request(self._run, dataset.spec, problem, completion)
        request.fresh = self.items.key_of(index).repeat > 0
        return request


def check_supported(spec: EvalRunSpec) -> None:
    """Refuse what the schema lets pass and no run can do. Raises BadInputError."""
    for index, dataset in enumerate(spec.datasets):
        if dataset.judge_mode == "Submit" and set(dataset.tests) != set(TEST_GROUPS):
            raise BadInputError(
                f"spec.datasets[{index}].tests: with judgeMode: Submit the server uses the tests that it has: remove "
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
        BadInputError: a source cannot be used, or two say something else of one problem.
    """
    datasets = []
    for dataset in spec.datasets:
        # All groups: nothing is left out, and sources that do not say which group a test is in are fine.
        tests = () if set(dataset.tests) == set(TEST_GROUPS) else dataset.tests
        sources = [dataset.source, *more.get(dataset.name, ())]
        each = [(source, iter_problems(source, dataset.name, base_dir, tests=tests)) for source in sources]
        problems = merged(each) if len(each) > 1 else each[0][1]
        ready = with_rows if dataset.judge_mode == "Submit" else with_tests
        datasets.append(RunDataset(dataset, list(islice(ready(problems, dataset.source), dataset.max_problems))))
    return datasets
