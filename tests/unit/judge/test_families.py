"""The registry of test families: a reader for each form of the contract, a judge for each kind of tests."""

from builders.judge.gateway import NoAssertions, Time, make_pool

from evalrun_judge.families.family import Runners
from evalrun_judge.families.registry import FAMILIES, build_families
from evalrun_judge.rpc.messages import request_from
from evalrun_judge.submission import StdioTest, StdioTests
from evalrun_proto.judge.v1 import judge_pb2

FORMS = [field.name for field in judge_pb2.JudgeRequest.DESCRIPTOR.oneofs_by_name["tests"].fields]


def test_every_form_of_the_contract_is_read_by_one_family() -> None:
    assert sorted(form for family in FAMILIES for form in family.FORMS) == sorted(FORMS)


def test_each_form_of_request_is_judged_by_the_family_that_reads_it() -> None:
    families = build_families(Runners(make_pool([], Time()), NoAssertions()))
    for form in FORMS:
        message = judge_pb2.JudgeRequest()
        getattr(message, form).SetInParent()
        family = families.find_family(request_from(message).tests)
        assert form in family.FORMS


def test_the_texts_of_stdio_tests_are_pairs() -> None:
    assert StdioTests([StdioTest("1", "2"), StdioTest("3", "")]).texts() == [(b"1", b"2"), (b"3", b"")]
