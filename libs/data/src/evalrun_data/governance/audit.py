"""Audits prepared datasets: the same problem in two of them, word for word or nearly, is an overlap.

Every pair of datasets is compared, except two training splits. An overlap that the allow file does not name fails both
datasets. Shared 13-grams and near-duplicates inside one dataset are reported beside it; they fail nothing. With a
stage for meaning, problems of the same meaning are overlaps too.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from evalrun_data.governance.allow_file import AllowedOverlap, OverlapKind
from evalrun_data.governance.audit_report import report_markdown
from evalrun_data.governance.audit_result import (
    AuditedDataset,
    AuditResult,
    MeaningAudit,
    NgramCount,
    Overlap,
    UndecidedPair,
    decide_state,
)
from evalrun_data.governance.compared_texts import TRAIN, DatasetTexts, ProblemText, StoredTexts, Texts
from evalrun_data.governance.intra_dataset_duplicates import IntraDatasetDuplicate, IntraDatasetIndex
from evalrun_data.governance.manifest import read_manifest
from evalrun_data.governance.meaning.meaning_result import MeaningResult
from evalrun_data.governance.meaning.meaning_stage import MeaningStage
from evalrun_data.governance.near_duplicates import (
    ComparedText,
    Fingerprint,
    Matches,
    ReferenceIndex,
    template_shingles,
)
from evalrun_data.governance.prepared import AUDIT, MANIFESTS, REPORT, PreparedDataset, read_prepared
from evalrun_runtime.atomic_files import write_text

SAMPLED_ROWS: Final = 100
"""First rows of each training split, in which templates are looked for."""

Found = tuple[int, OverlapKind, float, float, str]
"""Position of the reference, kind, Jaccard, containment, part."""


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """Result of a comparison."""

    overlaps: Sequence[Overlap]
    ngrams: Sequence[NgramCount]
    intra_dataset_duplicates: Sequence[IntraDatasetDuplicate]


def audit_directory(
    directory: Path, allowed: Sequence[AllowedOverlap], stage: MeaningStage | None = None
) -> AuditResult:
    """Audit a prepared directory; writes `audit.json` and `audit_report.md` into its `data_manifests`.

    Args:
        directory: what `evalrun data prepare` wrote.
        allowed: overlaps that are fine.
        stage: finds problems of the same meaning; None: texts alone are compared.

    Raises:
        BadInputError: the directory was not prepared, a file in it is damaged, or the embedding model is; then nothing
            is written.
    """
    datasets = read_prepared(directory)
    manifests = directory / MANIFESTS

    def texts(dataset: PreparedDataset) -> DatasetTexts:
        return DatasetTexts(dataset.name, dataset.role, StoredTexts(manifests / "texts" / f"{dataset.name}.jsonl"))

    compared = [texts(dataset) for dataset in datasets]
    found = compare(compared, allowed)
    overlaps, meaning = list(found.overlaps), None
    if stage is not None:
        known = {(overlap.first, overlap.datasets[1]) for overlap in overlaps}
        same, meaning = _audit_meaning(stage.run(compared, known), allowed)
        overlaps += same
    undecided = meaning.undecided if meaning else ()
    audited = []
    for dataset in datasets:
        manifest = read_manifest(str(manifests / f"{dataset.name}.jsonl"))
        licences = Counter(line.licence for line in manifest.lines if line.licence)
        state = decide_state(
            [each for each in overlaps if dataset.name in each.datasets],
            [each for each in undecided if dataset.name in each.datasets],
        )
        audited.append(AuditedDataset(dataset, manifest.sha256, state, dict(sorted(licences.items()))))
    settled = [(each.kind, each.first, each.second) for each in overlaps]
    settled += [("meaning", each.first, each.second) for each in undecided]
    unused = [entry for entry in allowed if not any(entry.allows(*each) for each in settled)]
    result = AuditResult(
        tuple(audited),
        tuple(overlaps),
        tuple(found.ngrams),
        tuple(found.intra_dataset_duplicates),
        tuple(unused),
        meaning,
    )
    write_text(manifests / REPORT, report_markdown(result))
    write_text(manifests / AUDIT, json.dumps(result.to_json(), indent=1, ensure_ascii=False) + "\n")
    return result


def compare(datasets: Sequence[DatasetTexts], allowed: Sequence[AllowedOverlap] = ()) -> ComparisonResult:
    """Compare datasets with each other, and the problems of each among themselves. Pure over its texts."""
    held = [(dataset.name, list(dataset.texts)) for dataset in datasets if dataset.role != TRAIN]
    keys = [f"{name}/{text.problem_id}" for name, texts in held for text in texts]
    references = [
        ComparedText(str(position), text.text, name, text.compared_parts)
        for position, (name, text) in enumerate((name, text) for name, texts in held for text in texts)
    ]
    index = ReferenceIndex(references, _templates(datasets))
    exact: defaultdict[str, list[int]] = defaultdict(list)
    for position, text in enumerate(_iter_texts(held)):
        for digest in text.exact:
            exact[digest].append(position)
    overlaps: list[Overlap] = []
    counts: defaultdict[tuple[str, str], int] = defaultdict(int)
    intra_dataset_duplicates: list[IntraDatasetDuplicate] = []

    def look(name: str, texts: Texts, first: int) -> None:
        inside = IntraDatasetIndex(name, lambda earlier: texts[earlier].text)
        for place, text in enumerate(texts):
            key, made = f"{name}/{text.problem_id}", Fingerprint.from_text(text.text)
            if (earlier := inside.take(place, text.problem_id, made)) is not None:
                intra_dataset_duplicates.append(earlier)
            if first >= len(keys):
                continue
            same = sorted({i for digest in text.exact for i in exact.get(digest, ()) if i >= first})
            matches = index.match_fingerprint(key, made, first)
            found: list[Found] = [(i, "exact", 1.0, 1.0, "whole") for i in same]
            leaked = {references[i].dataset for i in same}
            near = [each for each in _near(matches) if references[each[0]].dataset not in leaked]
            for position, kind, jaccard, contained, part in found + near:
                reason = _reason(allowed, kind, key, keys[position])
                overlaps.append(Overlap(kind, key, keys[position], jaccard, contained, reason, part))
            for other in {keys[int(i)].partition("/")[0] for i in matches.ngram}:
                counts[name, other] += 1

    for dataset in datasets:
        if dataset.role == TRAIN:
            look(dataset.name, dataset.texts, 0)
    first = 0
    for name, texts in held:
        first += len(texts)
        look(name, texts, first)
    ngrams = [NgramCount(first, second, rows) for (first, second), rows in sorted(counts.items())]
    return ComparisonResult(overlaps, ngrams, intra_dataset_duplicates)


def _near(matches: Matches) -> list[Found]:
    return [(int(pair.reference), "near", pair.jaccard, pair.containment, pair.part) for pair in matches.near]


def _templates(datasets: Sequence[DatasetTexts]) -> frozenset[str]:
    trains = [dataset.texts for dataset in datasets if dataset.role == TRAIN]
    found = (template_shingles(each.text for each in islice(texts, SAMPLED_ROWS)) for texts in trains)
    return frozenset().union(*found)


def _iter_texts(held: Sequence[tuple[str, Sequence[ProblemText]]]) -> Iterator[ProblemText]:
    for _, texts in held:
        yield from texts


def _reason(allowed: Sequence[AllowedOverlap], kind: OverlapKind, first: str, second: str) -> str | None:
    return next((entry.reason for entry in allowed if entry.allows(kind, first, second)), None)


def _audit_meaning(found: MeaningResult, allowed: Sequence[AllowedOverlap]) -> tuple[list[Overlap], MeaningAudit]:
    """Return the overlaps that the stage found, and its record, with what the allow file says to each pair."""
    overlaps = [
        Overlap(
            "meaning",
            each.pair.first,
            each.pair.second,
            each.jaccard,
            each.containment,
            _reason(allowed, "meaning", each.pair.first, each.pair.second),
            "statement",
            each.found_by,
            each.pair.cosine,
        )
        for each in found.found
    ]
    undecided = [
        UndecidedPair(
            each.pair.first,
            each.pair.second,
            each.pair.cosine,
            each.why,
            _reason(allowed, "meaning", each.pair.first, each.pair.second),
        )
        for each in found.open
    ]
    return overlaps, MeaningAudit(found, tuple(undecided))
