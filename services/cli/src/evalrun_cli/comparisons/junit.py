"""Gates as JUnit's XML, which CI systems show beside their other tests. Pure."""

from collections.abc import Sequence
from xml.etree import ElementTree

from evalrun_cli.printable_text import printable
from evalrun_results.comparisons.gate import GateDecision, GateResult

OUTCOMES = {GateDecision.FAIL: "failure", GateDecision.INCONCLUSIVE: "error"}
"""JUnit's term for each decision that does not pass. An error in JUnit is a test without a result."""


def gates_as_junit(decisions: Sequence[GateResult]) -> str:
    """Return decisions as a suite with a test case each."""
    found = [each.decision for each in decisions]
    suite = ElementTree.Element(
        "testsuite",
        name="evalrun gate",
        tests=str(len(found)),
        failures=str(found.count(GateDecision.FAIL)),
        errors=str(found.count(GateDecision.INCONCLUSIVE)),
    )
    for each in decisions:
        name = printable(f"{each.metric} against {each.baseline}")
        case = ElementTree.SubElement(suite, "testcase", classname=printable(each.dataset), name=name)
        outcome = OUTCOMES.get(each.decision)
        if outcome is not None:
            ElementTree.SubElement(case, outcome, type=each.reason, message=printable(each.message))
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True)
