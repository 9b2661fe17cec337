"""Checkers in the real sandbox: each protocol and language finds its files, its arguments and its stdin there."""

from pathlib import Path

from builders.data import stdio_problem
from builders.judge.services import judge_all, request_of, services, told

from evalrun_proto.judge.v1 import judge_pb2

DECIDES = {
    ("kattis", "python"): """\
import sys
numbers, wanted = open(sys.argv[1]).read().split(), int(open(sys.argv[2]).read())
open(sys.argv[3] + "judgemessage.txt", "w").write(str(numbers))
sys.exit(42 if int(input()) in (wanted, wanted + 1) else 43)
""",
    ("testlib", "python"): """\
import sys
got, wanted = (int(open(name).read()) for name in sys.argv[2:4])
print("close enough?", file=sys.stderr)
sys.exit(0 if got in (wanted, wanted + 1) else 1)
""",
    ("kattis", "cpp"): """\
#include <fstream>
#include <iostream>
int main(int argc, char *argv[]) {
    std::ifstream answer(argv[2]);
    long wanted, got;
    answer >> wanted;
    std::cin >> got;
    std::ofstream(std::string(argv[3]) + "judgemessage.txt") << got;
    return got == wanted || got == wanted + 1 ? 42 : 43;
}
""",
    ("testlib", "c"): """\
#include <stdio.h>
int main(int argc, char *argv[]) {
    long wanted, got;
    if (fscanf(fopen(argv[2], "r"), "%ld", &got) != 1) return 2;
    if (fscanf(fopen(argv[3], "r"), "%ld", &wanted) != 1) return 3;
    return got == wanted || got == wanted + 1 ? 0 : 1;
}
""",
}
"""Accepts the expected sum and the one after it, so that only a checker can say so."""

ANSWERS = {
    "right": ("print(sum(map(int, input().split())))", judge_pb2.FINAL_STATUS_SUCCESS),
    "also right": ("print(sum(map(int, input().split())) + 1)", judge_pb2.FINAL_STATUS_SUCCESS),
    "wrong": ("print(sum(map(int, input().split())) + 2)", judge_pb2.FINAL_STATUS_WRONG_ANSWER),
    "crash": ("print(sum(map(int, input().split()))); raise SystemExit(42)", judge_pb2.FINAL_STATUS_RUNTIME_ERROR),
}


async def test_checkers_of_each_protocol_and_language_decide_the_verdict(tmp_path: Path) -> None:
    requests, right = {}, {}
    for (protocol, language), source in DECIDES.items():
        for kind, (code, final) in ANSWERS.items():
            name = f"{protocol} {language} {kind}"
            requests[name] = request_of(stdio_problem(tests=3), code)
            requests[name].comparator.CopyFrom(
                judge_pb2.Comparator(
                    name="checker",
                    checker=judge_pb2.Checker(protocol=protocol, language=language, source=source),
                )
            )
            right[name] = final
    async with services(tmp_path) as (judge, _):
        verdicts = await judge_all(judge.address, requests)
    assert {name: told(v) for name, v in verdicts.items() if v.final_status != right[name] or not v.judged} == {}
    also = verdicts["kattis cpp also right"]
    assert {"exact", "standard"} <= set(also.disagreeing_comparators)
