"""Warns the user before anything is generated, one line per warning. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from evalrun_aggregator.start.datasets import RunDataset
from evalrun_api.run_config import EvalRunSpec
from evalrun_registry.languages import LANGUAGES
from evalrun_results.comparisons.power import gate_outlook

NAMED_GROUPS: Final = 5
"""Maximum number of groups of problems with the same prompt that a warning names."""


def start_warnings(datasets: Sequence[RunDataset], spec: EvalRunSpec) -> list[str]:
    """Return warnings about data and gates that make the results less meaningful than they seem.

    Args:
        datasets: the datasets of the run.
        spec: the spec of the run.
    """
    found = [line for dataset in datasets for line in dataset_warnings(dataset)]
    sizes = {dataset.spec.name: len(dataset.problems) for dataset in datasets}
    for gate in spec.gates:
        problems = sum(sizes.get(name, 0) for name in gate.dataset_names)
        outlook = gate_outlook(gate, problems, family=len(spec.gates))
        found += [] if outlook is None else [f"spec.{outlook}"]
    found += ungated_warnings(spec)
    return found


def dataset_warnings(dataset: RunDataset) -> list[str]:
    """Return the warnings about the problems of a dataset."""
    return [*list_exclusion_warnings(dataset), *duplicate_warnings(dataset), *refusal_warnings(dataset)]


def refusal_warnings(dataset: RunDataset) -> Iterable[str]:
    """Yield a line for each reason why problems cannot be judged in their language. A grader judges all problems."""
    if dataset.grader is not None or dataset.spec.judge_mode == "Submit":
        return []
    by_reason: dict[str, list[str]] = {}
    for problem in dataset.problems:
        if reason := problem.ground_truth.explain_refusal(problem.language):
            by_reason.setdefault(reason, []).append(problem.problem_id)
    return [
        f"{dataset.spec.name}: {len(names)} of {len(dataset.problems)} problems cannot be judged: {reason}: "
        f"{', '.join(names[:NAMED_GROUPS])}{', ...' if len(names) > NAMED_GROUPS else ''}"
        for reason, names in by_reason.items()
    ]


def count_languages(datasets: Sequence[RunDataset]) -> dict[str, Counter[str]]:
    """Return how many problems of each dataset need a sandbox with each language. Problems with a grader need none."""
    return {
        dataset.spec.name: Counter(problem.language for problem in dataset.problems if dataset.grader is None)
        for dataset in datasets
    }


def language_warnings(counts: Mapping[str, Mapping[str, int]], judges: Iterable[Sequence[str]]) -> list[str]:
    """Return a line for each dataset with problems that no judge can judge, because its sandboxes lack the language.

    Args:
        counts: result of `count_languages`.
        judges: languages of each judge that has described itself; a judge that names none is unknown.
    """
    known = [set(languages) for languages in judges if languages]
    spoken = set.intersection(*known) if known else set(LANGUAGES)
    found = []
    for dataset, needed in counts.items():
        missing = [name for name in LANGUAGES if name in needed and name not in spoken]
        if not missing:
            continue
        packages = " ".join(sorted({package for name in missing for package in LANGUAGES[name].packages}))
        said = " and ".join(f"{needed[name]} in {name}" for name in missing)
        found.append(
            f"{dataset}: of {sum(needed.values())} problems, {said} cannot be judged: the sandbox lacks the language. "
            f"Install {packages} where it runs, or use the image evalrun-sandbox-all"
        )
    return found


def list_exclusion_warnings(dataset: RunDataset) -> Iterable[str]:
    """Yield a line if problems are left out: the metrics are then not those of the published benchmark."""
    excluded = dataset.spec.exclude_problems
    if not excluded:
        return []
    named = ", ".join(excluded[:NAMED_GROUPS]) + (", ..." if len(excluded) > NAMED_GROUPS else "")
    plural = "problem is" if len(excluded) == 1 else "problems are"
    says = f"{len(excluded)} {plural} excluded by excludeProblems: figures compare only with runs that exclude the same"
    return [f"{dataset.spec.name}: {says}: {named}"]


def ungated_warnings(spec: EvalRunSpec) -> Iterable[str]:
    """Yield a line about datasets that no gate covers, if the gates may stop the run."""
    gates = spec.gates
    if not gates or not all(gate.may_stop for gate in gates):
        return []
    gated = {name for gate in gates for name in gate.dataset_names}
    others = [dataset.name for dataset in spec.datasets if dataset.name not in gated]
    if not others:
        return []
    says = "no gate is about it, so what is left of it is cancelled once the gates have decided"
    return [f"{', '.join(others)}: {says}: write stopEarly: false to draw everything, or list it before the gated ones"]


def duplicate_warnings(dataset: RunDataset) -> Iterable[str]:
    """Yield a line that names problems with the same text (blanks and Unicode forms apart), if there are any."""
    by_text: dict[str, list[str]] = {}
    for problem in dataset.problems:
        by_text.setdefault(problem.prompt_sha256, []).append(problem.problem_id)
    groups = [names for names in by_text.values() if len(names) > 1]
    if not groups:
        return []
    named = "; ".join(" = ".join(names) for names in groups[:NAMED_GROUPS])
    more = f"; and {len(groups) - NAMED_GROUPS} more" if len(groups) > NAMED_GROUPS else ""
    count = sum(map(len, groups))
    says = f"{dataset.spec.name}: {count} problems share their text with another one, so that it counts several times"
    return [f"{says}: {named}{more}. Remove all but one of each"]
