"""The sampled completions of a dataset, for people to read. They are untrusted: shown, never run. Pure."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from evalrun_results.report import quantities as shown
from evalrun_results.report.highlighter import answer, guess_language, highlight_code
from evalrun_results.report.json_access import Json, amount, inside, mapping, text
from evalrun_results.report.markup import Child, Markup, element, joined
from evalrun_results.report.page import make_foldable
from evalrun_results.report.statuses import LABELS, pill

KEPT: Final = 12_000
"""Maximum characters of a text; the whole text is in the QA logs and in results.jsonl."""
KEPT_OF_CASE: Final = 2_000
OUTPUT_LABELS: Final = ("Input", "Expected", "Printed", "Errors")
ASSERTION_LABELS: Final = ("Assertion", "Expected", "Returned", "Errors")


def qa_section(records: Sequence[Json]) -> Markup:
    """Return a dataset's QA records, folded, by outcome, with accepted completions last."""
    places = {status: place for place, status in enumerate(LABELS) if status != "success"}
    ordered = sorted(records, key=lambda record: places.get(text(record, "final_status"), len(LABELS)))
    return joined(
        element("h3", f"{len(ordered)} sampled answers"),
        [_record(record) for record in ordered],
    )


def _record(record: Json) -> Markup:
    ratio = amount(record, "pass_ratio")
    facts = [f"passed {shown.percent(ratio)}"] if ratio not in (None, 0.0, 1.0) else []
    tokens, gen_time = amount(record, "output_tokens"), amount(record, "gen_time")
    facts += [f"{tokens:.0f} tokens"] if tokens is not None else []
    facts += [shown.seconds(gen_time)] if gen_time is not None else []
    sample = text(record, "sample")
    name = text(record, "problem_id") + (f" · sample {sample}" if sample not in {"", "0"} else "")
    name += f" · turn {turn + 1:.0f}" if (turn := amount(record, "turn")) else ""
    summary = joined(
        pill(text(record, "final_status")),
        " ",
        element("span", name, class_="mono"),
        element("span", " · ".join(facts), class_="right"),
    )
    return make_foldable(summary, *_inside(record))


def _inside(record: Json) -> Iterator[Child]:
    if reason := text(record, "not_judged_reason"):
        yield element("p", f"Not judged: {reason}", class_="quiet")
    language = guess_language(text(record, "response")) or "python"
    yield element("h4", "Answer")
    yield answer(_cut(text(record, "response"), KEPT), language) or element("p", "(empty)", class_="quiet")
    truth = inside(record, "ground_truth")
    case = mapping(record, "execution_output", "first_failed_case")
    if case:
        status = text(case, "status")
        what = "First test that could not be judged" if status == "api_error" else "First failed test"
        number = "" if _has_one_test(truth) else f"case {text(case, 'case_index')}, "
        yield element("h4", f"{what}: {number}{status.replace('_', ' ')}")
        if reason := text(case, "reason"):
            yield element("p", reason)
        is_assertion = inside(truth, "test") is not None or inside(truth, "test_list") is not None
        yield from _texts(case, ASSERTION_LABELS if is_assertion else OUTPUT_LABELS)
    yield make_foldable("Problem", answer(_cut(text(record, "prompt"), KEPT)))
    if truth:
        yield make_foldable("Tests", _ground_truth(truth))


def _texts(case: Json, labels: Sequence[str]) -> Iterator[Markup]:
    """Return the test's expected and actual output. The input takes the full width, so that readers need not scroll."""
    fields = ("input", "expected", "actual", "stderr")
    asked, *others = [
        element("div", element("h4", label), element("pre", _cut(content, KEPT_OF_CASE), dir="ltr"), class_="case")
        if (content := text(case, field))
        else None
        for field, label in zip(fields, labels, strict=True)
    ]
    if asked is not None:
        yield asked
    yield element("div", [each for each in others if each is not None], class_="grid tight")


def _has_one_test(truth: object) -> bool:
    listed = [inside(truth, field) for field in ("test_list", "inputs")]
    return all(not isinstance(each, list) or len(each) == 1 for each in listed)


def _ground_truth(truth: object) -> Markup:
    test = inside(truth, "test")
    if isinstance(test, str):
        return element("pre", highlight_code(_cut(test, KEPT)), dir="ltr")
    asserts = inside(truth, "test_list")
    if isinstance(asserts, list):
        return element("pre", highlight_code(_cut("\n".join(map(str, asserts)), KEPT)), dir="ltr")
    written = truth if isinstance(truth, str) else json.dumps(truth, indent=1, ensure_ascii=False, default=str)
    return element("pre", _cut(written, KEPT), dir="ltr")


def _cut(content: str, kept: int) -> str:
    left = len(content) - kept
    return content if left <= 0 else f"{content[:kept]}\n... [{left} more characters]"
