"""Writes the audit report for people: counts, overlaps with their state, leakage, the MBPP ids, versions. Pure."""

import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from itertools import combinations
from typing import Final

from evalrun_data.formats.mbpp import REGRESSION_IDS
from evalrun_data.governance.allow_file import KINDS
from evalrun_data.governance.audit_result import AuditedDataset, AuditResult, MeaningAudit, Overlap, decide_state
from evalrun_data.governance.intra_dataset_duplicates import MIN_INTRA_DATASET_JACCARD
from evalrun_data.governance.near_duplicates import MIN_CONTAINMENT, MIN_JACCARD
from evalrun_data.governance.part_matches import MIN_SHARE_WITH_NGRAM, MIN_SHARES
from evalrun_data.governance.shingles import NGRAM_WORDS, SHINGLE_CHARACTERS
from evalrun_runtime.distribution import read_own_version

MAX_LISTED: Final = 200
"""Maximum number of pairs in a table; audit.json has all of them."""

_METHOD: Final = (
    f"Near: at least {MIN_JACCARD:g} of all shingles of {SHINGLE_CHARACTERS} word characters are shared (Jaccard), "
    f"or at least {MIN_CONTAINMENT:g} of the second problem's shingles and a run of {NGRAM_WORDS} words; or a stretch "
    f"of the first problem holds at least {MIN_SHARES['statement']:g} of the weight of the second's statement "
    f"({MIN_SHARE_WITH_NGRAM:g} with a run of {NGRAM_WORDS} words), {MIN_SHARES['solution']:g} of its solution's or "
    f"{MIN_SHARES['tests']:g} of its tests'. Text that many problems of a dataset have weighs nothing. Each pair is "
    "verified exactly.\n\n"
    "Seldom found by any of these: problems that were rephrased, or translated into another programming language. On "
    "labelled data fewer than 1 in 5 of them were found, so an empty table is no proof that there are none. "
    "`evalrun data audit --embedder` compares meanings.\n"
)


def report_markdown(result: AuditResult) -> str:
    """Return `audit_report.md`."""
    family = {audited.dataset.name: audited.dataset.source_url for audited in result.datasets}
    inside = [overlap for overlap in result.overlaps if _same_family(overlap, family)]
    outside = [overlap for overlap in result.overlaps if not _same_family(overlap, family)]
    open_ones = sum(overlap.allowed is None for overlap in result.overlaps)
    allowed = len(result.overlaps) - open_ones
    state = f"State: **{result.state}**. {open_ones} overlaps are not allowed, {allowed} are allowed by the allow file."
    if result.state == "incomplete":
        state += " Pairs that may be the same problem are undecided: see Meaning."
    sections = [
        f"# Audit report\n\n{state}\n",
        f"## 1. Sample counts\n\n{_counts(result)}\n{_inside(result)}",
        f"## 2. Overlap between splits\n\n{_pairs(result, family, same=True)}\n{_overlaps(inside)}",
        f"## 3. External leakage\n\n{_pairs(result, family, same=False)}\n{_overlaps(outside)}",
        f"{_METHOD}\n{_ngrams(result)}",
        *([] if result.meaning is None else [f"## Meaning\n\n{_render_meaning(result.meaning)}"]),
        f"## 4. The fixed MBPP ids\n\n{_mbpp(result)}",
        f"## 5. Versions\n\n{_versions(result)}",
    ]
    if result.unused:
        lines = "".join(f"- {entry.first} and {entry.second}: {entry.reason}\n" for entry in result.unused)
        sections.append(f"## Allowances that cover nothing\n\n{lines}")
    return "\n".join(sections)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(_cell(value) for value in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return " ".join(text.replace("|", "\\|").split())


def _counts(result: AuditResult) -> str:
    head = ("dataset", "split", "role", "before", "after", "removed", "state", "manifest hash")
    rows = [
        (d.name, d.split, d.role, d.kept + d.removed, d.kept, d.removed, audited.state, audited.manifest_sha256)
        for audited in result.datasets
        for d in (audited.dataset,)
    ]
    return _table(head, rows)


def _inside(result: AuditResult) -> str:
    near = result.intra_dataset_duplicates
    head = (
        f"Near-duplicates inside a dataset, at {MIN_INTRA_DATASET_JACCARD:g} of all shingles "
        "(they stay, and fail nothing): "
    )
    if not near:
        return f"{head}none.\n"
    rows = [(each.dataset, each.problem_id, each.near_to, each.jaccard) for each in near[:MAX_LISTED]]
    more = len(near) - MAX_LISTED
    table = _table(("dataset", "problem", "near to", "Jaccard"), rows)
    return f"{head}{len(near)}.\n\n{table}" + (f"\n{more} more stand in `audit.json`.\n" if more > 0 else "")


def _same_family(overlap: Overlap, family: dict[str, str]) -> bool:
    first, second = overlap.datasets
    return family[first] == family[second]


def _pairs(result: AuditResult, family: dict[str, str], *, same: bool) -> str:
    """Return a row for every pair of datasets that was compared, with its number of overlaps, 0 too."""
    datasets = [audited.dataset for audited in result.datasets]
    rows: list[tuple[object, ...]] = []
    kinds = KINDS if result.meaning else tuple(kind for kind in KINDS if kind != "meaning")
    for first, second in combinations(datasets, 2):
        if (family[first.name] == family[second.name]) is not same:
            continue
        if first.role == second.role == "train":
            rows.append((first.name, second.name, *("-" for _ in kinds), "two training splits are not compared"))
            continue
        found = [each for each in result.overlaps if set(each.datasets) == {first.name, second.name}]
        undecided = [
            each
            for each in (result.meaning.undecided if result.meaning else ())
            if set(each.datasets) == {first.name, second.name}
        ]
        kinds_found = [sum(each.kind == kind for each in found) for kind in kinds]
        state = decide_state(found, undecided)
        rows.append((first.name, second.name, *kinds_found, "**not allowed**" if state == "failed" else state))
    return _table(("dataset", "with", *kinds, "state"), rows) if rows else "No two datasets to compare.\n"


def _overlaps(overlaps: Sequence[Overlap]) -> str:
    if not overlaps:
        return "None found.\n"
    head = ("kind", "problem", "and", "Jaccard", "contained", "state")
    rows = [
        (
            o.kind if o.cosine is None else f"{o.kind} (cosine {o.cosine:.3f}, by the {o.found_by})",
            o.first,
            o.second,
            o.jaccard,
            o.containment,
            f"allowed: {o.allowed}" if o.allowed else "**not allowed**",
        )
        for o in overlaps[:MAX_LISTED]
    ]
    more = len(overlaps) - MAX_LISTED
    return _table(head, rows) + (f"\n{more} more stand in `audit.json`.\n" if more > 0 else "")


def _render_meaning(meaning: MeaningAudit) -> str:
    result, judge = meaning.result, meaning.result.judge
    files = ", ".join(f"`{name}` {sha256}" for name, sha256 in result.model_sha256.items())
    text = (
        f"The statement of each of {result.texts} problems was embedded, and the nearest problem of each other dataset "
        f"found. From a cosine of {result.min_cosine:g} on a pair counts as the same problem. {result.cut} texts are "
        f"longer than {result.max_tokens} tokens; the rest of them was not seen. Solutions and tests are not compared "
        f"by meaning. The model's files, by SHA-256: {files}.\n"
    )
    if judge is not None:
        text += (
            f"\n{judge.model} was asked about {judge.asked} pairs from a cosine of {judge.min_cosine:g} on, and its "
            f"word counted: {judge.same} the same, {judge.different} different, {judge.undecided} undecided. "
            f"{judge.not_asked} pairs were not asked about (at most {judge.max_pairs} are).\n"
        )
        if judge.outage:
            text += f"\n**The stage is incomplete: {_cell(judge.outage)}.**\n"
    if meaning.undecided:
        head = ("undecided problem", "and", "cosine", "why", "state")
        rows = [
            (each.first, each.second, each.cosine, each.why, f"allowed: {each.allowed}" if each.allowed else "**open**")
            for each in meaning.undecided[:MAX_LISTED]
        ]
        more = len(meaning.undecided) - MAX_LISTED
        text += f"\n{_table(head, rows)}" + (f"\n{more} more stand in `audit.json`.\n" if more > 0 else "")
    return text


def _ngrams(result: AuditResult) -> str:
    if not result.ngrams:
        return f"No row shares a run of {NGRAM_WORDS} words with a problem of another dataset.\n"
    rows = [(count.first, count.second, count.rows) for count in result.ngrams]
    return (
        f"Rows that share a run of {NGRAM_WORDS} words, whether or not they are near (fails nothing by itself):\n\n"
        + _table(("rows of", "with", "rows"), rows)
    )


def _mbpp(result: AuditResult) -> str:
    first, last = REGRESSION_IDS.start, REGRESSION_IDS.stop - 1
    ids = f"`mbpp_reg` is MBPP's task ids {first} to {last}, {len(REGRESSION_IDS)} problems"
    held = next((audited.dataset for audited in result.datasets if audited.dataset.name == "mbpp_reg"), None)
    if held is None:
        return f"{ids}. It is not among these datasets.\n"
    return f"{ids}. Here: {held.kept} after and {held.kept + held.removed} before duplicates were removed.\n"


def _licences(audited: AuditedDataset) -> str:
    """Return the licences of the records, each with its number where there are several."""
    found = audited.licences
    if len(found) < 2:
        return next(iter(found), audited.dataset.licence)
    return ", ".join(f"{licence} ({count})" for licence, count in found.items())


def _versions(result: AuditResult) -> str:
    rows = [
        (d.name, d.version or "not given", _licences(audited), d.source_url, source.source, source.bytes, source.sha256)
        for audited in result.datasets
        for d in (audited.dataset,)
        for source in d.sources
    ]
    head = ("dataset", "version", "licence (records)", "published at", "read from", "bytes", "SHA-256")
    programs = f"evalrun {read_own_version()}, rensa {version('rensa')}, Python {platform.python_version()}"
    return f"{_table(head, rows)}\nWritten by {programs}.\n"
