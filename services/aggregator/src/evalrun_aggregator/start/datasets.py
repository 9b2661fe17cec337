"""Loads the datasets of a run, audits them, and selects the problems that the spec uses."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from evalrun_api.run_config import Dataset, EvalRunSpec
from evalrun_client.grader import Grader, read_dataset_grader
from evalrun_client.submit_mode import require_rows, require_tests
from evalrun_data.digest import digest_problems, digest_records
from evalrun_data.governance.run_audit import SET_POLICY, DatasetAudit, audit_dataset, choose_role
from evalrun_data.prompts import read_template, render
from evalrun_data.readers import iter_problems, merge_sources
from evalrun_data.records import TEST_GROUPS, Message, Problem
from evalrun_data.sources import Source
from evalrun_results.comparisons.roles import refusal_for_role
from evalrun_runtime.exits import BadInputError


@dataclass(frozen=True)
class RunDataset:
    """A dataset's spec with the problems that the run uses."""

    spec: Dataset
    problems: Sequence[Problem]
    audit: DatasetAudit | None = None
    role: str = ""
    """Role of the dataset: train, dev or test; empty if unknown."""
    template: str | None = None
    """Text of the file that `promptTemplate` names."""
    grader: Grader | None = None
    """Grader that scores the completions; None if the tests decide."""
    excluded: Sequence[Problem] = ()
    """Problems left out by `excludeProblems`. Given completions may belong to them."""
    is_cut: bool = False
    """Whether `maxProblems` leaves out some of its problems."""

    @cached_property
    def prompts_sha256(self) -> str:
        """Digest of the prompts, which must not change when a run is resumed."""
        own = [] if self.spec.system_prompt is None else [self.spec.system_prompt]
        own += [] if self.template is None else ["template", self.template]
        return digest_records([problem.problem_id, problem.prompt, *own] for problem in self.problems)

    def messages(self, problem: Problem) -> list[Message]:
        """Return the prompt of a problem."""
        return render(problem, self.spec.prompt_format, self.spec.system_prompt, self.template)

    @cached_property
    def records_sha256(self) -> str:
        """Digest of the problems and tests, without role and date."""
        return digest_problems(self.problems)


def check_supported(spec: EvalRunSpec) -> None:
    """Refuse specs that are valid by schema but that no run can execute. Raises BadInputError."""
    for index, dataset in enumerate(spec.datasets):
        if dataset.judge_mode == "Submit" and set(dataset.tests) != set(TEST_GROUPS):
            raise BadInputError(
                f"spec.datasets[{index}].tests: with judgeMode: Submit the server uses its own tests: remove "
                f"tests, or write judgeMode: RunCode ({dataset.name})"
            )
    if not spec.datasets:
        raise BadInputError("spec.datasets: nothing to evaluate: list at least one dataset")


def load_datasets(
    spec: EvalRunSpec, base_dir: Path, more: Mapping[str, Sequence[str]], audit_remedy: str = SET_POLICY
) -> list[RunDataset]:
    """Load every dataset of a spec, cut to the problems and tests that it uses.

    Args:
        spec: the spec of the run.
        base_dir: base of relative sources.
        more: further sources of a dataset, by its name.
        audit_remedy: advice to a user who wants data that did not pass its audit.

    Raises:
        BadInputError: a source cannot be used, two sources differ about a problem, a dataset's audit failed, or a gate
            uses test data.
    """
    datasets = []
    for index, dataset in enumerate(spec.datasets):
        sources = [Source(name, base_dir) for name in (dataset.source, *more.get(dataset.name, ()))]
        datasets.append(_load(dataset, f"spec.datasets[{index}]", sources, audit_remedy))
    _check_gate(spec, datasets)
    return datasets


def _load(dataset: Dataset, field: str, sources: Sequence[Source], audit_remedy: str) -> RunDataset:
    """Load a dataset from its sources, its own first. `field` is its path in the spec. Raises BadInputError."""
    own, base_dir = sources[0], sources[0].base_dir
    # With all groups nothing is left out, and sources that do not name a test's group are fine.
    tests = () if set(dataset.tests) == set(TEST_GROUPS) else dataset.tests
    grader = read_dataset_grader(dataset, base_dir)
    graded = None if grader is None else grader.decides
    each = [(source.name, iter_problems(source, dataset.name, tests=tests, graded=graded)) for source in sources]
    problems = merge_sources(each) if len(each) > 1 else each[0][1]
    ready = require_rows if dataset.judge_mode == "Submit" else require_tests
    used, excluded = list[Problem](), dict[str, Problem]()
    cut = Cut()
    stream = _select_problems(ready(problems, own.name), used, excluded, dataset, cut)
    audit = audit_dataset(
        dataset.name,
        own,
        stream,
        manifest=dataset.manifest,
        policy=dataset.audit_policy,
        all_tests=not tests and grader is None,
        remedy=audit_remedy,
    )
    # No audit is due.
    if audit is None:
        while (len(excluded) < len(dataset.exclude_problems) or len(used) != dataset.max_problems) and next(
            stream, None
        ) is not None:
            pass
    if not cut.problems:
        # The problem after the last used problem is read, to learn whether the limit cuts.
        next(stream, None)
    missing = set(dataset.exclude_problems) - set(excluded)
    _check_exclusions(dataset, f"{field}.excludeProblems", missing, used)
    role = choose_role(dataset.name, dataset.role, audit, used)
    template = None if dataset.prompt_template is None else read_template(dataset.prompt_template, base_dir)
    return RunDataset(dataset, used, audit, role, template, grader, [*excluded.values()], is_cut=cut.problems > 0)


@dataclass
class Cut:
    """Counts the problems read beyond `maxProblems`."""

    problems: int = 0


def _select_problems(
    problems: Iterable[Problem], kept: list[Problem], excluded: dict[str, Problem], dataset: Dataset, cut: Cut
) -> Iterator[Problem]:
    """Yield every problem to the audit, and append the problems that the run uses to `kept`.

    Args:
        problems: all problems of the source.
        kept: gets the problems that the run uses.
        excluded: gets the problems that are left out, by id.
        dataset: spec of the dataset, with `excludeProblems` and `maxProblems`.
        cut: counts the problems beyond `maxProblems`.
    """
    left_out = frozenset(dataset.exclude_problems)
    for problem in problems:
        if problem.problem_id in left_out:
            excluded[problem.problem_id] = problem
        elif dataset.max_problems is None or len(kept) < dataset.max_problems:
            kept.append(problem)
        else:
            cut.problems += 1
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
    for gate in spec.gates:
        for name in gate.dataset_names:
            if refusal := refusal_for_role(gate, name, roles.get(name, "")):
                raise BadInputError(f"spec.gates: {refusal}")
