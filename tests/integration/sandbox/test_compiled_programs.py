"""C and C++: compiled once, run many times."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from builders.judge.sandbox import processes_named, request, require_compiler, run_one, started, until

from evalrun_executor.errors import ExecutorLost, RequestRefused
from evalrun_executor.executor import Executor, ExecutorPlan
from evalrun_executor.oom_kills import OomKills
from evalrun_executor.run_queues import RunQueues
from evalrun_executor.toolchain import COMPILERS
from evalrun_executor.zygotes.run_ends import UnexplainedKill

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(shutil.which("g++", path="/usr/bin:/bin") is None, reason="no C++ compiler here"),
]

# ruff: noqa: E501, ISC004 - tables of programs read best with a program a line
SUM = {
    "c": "#include <stdio.h>\nint main(void){int a,b;if(scanf(\"%d %d\",&a,&b)!=2)return 3;printf(\"%d\",a+b);return 0;}",
    "cpp": "#include <iostream>\nint main(){int a,b;if(!(std::cin>>a>>b))return 3;std::cout<<a+b<<std::endl;}",
}  # fmt: skip


@pytest.mark.parametrize("language", SUM)
async def test_a_program_runs_on_each_input(executor: Executor, language: str) -> None:
    reply = await executor.run(request(SUM[language], b"1 2", b"40 2", b"", language=language))
    assert reply.compile.status == "ok"
    assert [run.stdout.strip() for run in reply.runs] == [b"3", b"42", b""]
    assert [run.exit_code for run in reply.runs] == [0, 0, 3]


async def test_compile_error_names_the_line(executor: Executor) -> None:
    reply = await executor.run(request("int main(){ return x; }", language="c"))
    assert reply.compile.status == "error"
    assert b"main.c:1" in reply.compile.stderr
    assert reply.runs[0].end == "not_run"


async def test_killed_compiler_stage_is_repeated_and_is_no_compile_error(executor: Executor) -> None:
    """As the machine does that has no memory left: the compiler's driver then ends as it does for a mistake."""
    code = "#include <bits/stdc++.h>\nint main(){ std::cout << 40 + 2; }"
    judged = asyncio.create_task(executor.run(request(code, language="cpp")))
    while not (stages := processes_named("cc1plus")):
        assert not judged.done(), "the compiler was not seen"
        await asyncio.sleep(0.005)
    for stage in stages:
        os.kill(stage, signal.SIGKILL)
    reply = await judged
    assert reply.compile.status == "ok", reply.compile.stderr
    assert reply.runs[0].stdout == b"42"


STAGES = {
    "cpp": ("cc1plus", "#include <bits/stdc++.h>\nint main(){ std::cout << 40 + 2; }"),
    "go": (
        "compile",
        'package main\nimport "fmt"\nfunc main() { fmt.Println(42) }\n'
        + "".join(
            f"func f{n}(x int) int {{ if x > {n} {{ return x * {n} }}; return f{n}(x + 1) }}\n" for n in range(3000)
        ),
    ),
    "java": ("javac", "public class Main { public static void main(String[] a) { System.out.println(42); } }\n"),
    "rust": ("rustc", 'fn main() { println!("{}", 42); }'),
    "typescript": ("node", "const x: number = 42; console.log(x);\n"),
}
"""By language: the process that does its compiler's work, and a right program."""


@pytest.mark.parametrize("language", STAGES)
async def test_compiler_that_is_killed_each_time_gives_no_verdict(executor: Executor, language: str) -> None:
    require_compiler(COMPILERS[language])
    stage, code = STAGES[language]
    judged = asyncio.create_task(executor.run(request(code, language=language)))
    killed = set[int]()
    while not judged.done():
        for pid in set(processes_named(stage)) - killed:
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        await asyncio.sleep(0.002)
    assert isinstance(judged.exception(), UnexplainedKill), judged.result().compile
    assert len(killed) >= 2
    reply = await executor.run(request(code, language=language))
    assert reply.runs[0].stdout.strip() == b"42"


PROGRAMS: dict[str, tuple[str, str, int | None, bytes]] = {
    "deep recursion": (
        "#include <cstdio>\nvolatile int x;\nlong f(long n){ volatile char pad[64]; pad[0]=n; return n ? f(n-1)+pad[0]*0+1 : 0; }\n"
        "int main(){ printf(\"%ld\", f(1000000)); }", "exited", 0, b"1000000"),
    "threads": ("#include <thread>\n#include <cstdio>\nint main(){ std::thread t([]{ printf(\"t\"); }); t.join(); }",
                "exited", 0, b"t"),
    "eight threads": ("#include <thread>\n#include <vector>\n#include <cstdio>\nint main(){ std::vector<std::thread> t;\n"
                      "for(int i=0;i<8;i++) t.emplace_back([]{}); for(auto& x: t) x.join(); puts(\"joined\"); }",
                      "exited", 0, b"joined"),
    "an array of nearly all memory": ("#include <cstdio>\nchar a[250 << 20];\nint main(){ for(size_t i=0;i<sizeof a;i+=4096) a[i]=1;\n"
                                      "puts(\"fits\"); }", "exited", 0, b"fits"),
    "math": ("#include <cmath>\n#include <cstdio>\nint main(){ double x; scanf(\"%lf\",&x); printf(\"%.3f\", std::sqrt(2.0)); }",
             "exited", 0, b"1.414"),
    "exceptions": ("#include <stdexcept>\n#include <cstdio>\nint main(){ try { throw std::runtime_error(\"x\"); } "
                   "catch (std::exception& e) { printf(\"%s\", e.what()); } }", "exited", 0, b"x"),
    "a crash": ("int main(){ int* p = 0; *(volatile int*)p = 1; }", "exited", -11, b""),
    "abort": ("#include <cstdlib>\nint main(){ std::abort(); }", "exited", -6, b""),
    "too much memory": ("#include <vector>\nint main(){ std::vector<char> v; for(;;) v.resize(v.size() + (1 << 20), 1); }",
                        "memory_limit", None, b""),
    "malloc that fails": ("#include <cstdlib>\n#include <cstdio>\nint main(){ printf(\"%d\", malloc(1ull << 40) == 0); }",
                          "exited", 0, b"1"),
    "endless": ("int main(){ for(volatile int i = 0;; i++); }", "timeout", None, b""),
    "a flood": ("#include <cstdio>\nint main(){ for(;;) puts(\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"); }", "output_limit", None,
                b"x"),
    "unflushed at _exit": ("#include <unistd.h>\n#include <cstdio>\nint main(){ printf(\"lost\"); _exit(0); }", "exited", 0,
                           b""),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
async def test_end_of_a_compiled_program_is_reported(executor: Executor, name: str) -> None:
    code, end, exit_code, stdout = PROGRAMS[name]
    run = await run_one(executor, code, language="cpp", seconds=1.0, memory=256)
    assert (run.end, run.exit_code) == (end, exit_code), run.stderr
    assert run.stdout[: len(stdout) or None] == stdout


HOSTILE = {
    "a fork bomb": '#include <unistd.h>\n#include <stdio.h>\nint main(){ int n=0; for(int i=0;i<64;i++) if (fork() >= 0) n++; printf("%d", n); }',
    "a shell": '#include <unistd.h>\n#include <stdio.h>\nint main(){ execl("/bin/sh", "sh", "-c", "echo escaped", (char*)0); printf("0"); }',
    "system": '#include <stdlib.h>\n#include <stdio.h>\nint main(){ system("echo escaped"); printf("0"); }',
    "itself, by a copy": '#include <unistd.h>\n#include <stdio.h>\n#include <fcntl.h>\n#include <sys/syscall.h>\nint main(){ '
        'int f=open("copy",O_CREAT|O_RDWR,0777); write(f,"#!/bin/sh\\necho escaped\\n",23); dup2(f,3); char*a[]={"x",0}; '
        'syscall(SYS_execveat,3,"",a,a,0x1000); printf("0"); }',
    "a socket": '#include <sys/socket.h>\n#include <stdio.h>\nint main(){ printf("%d", socket(AF_INET, SOCK_STREAM, 0) >= 0); }',
    "a file": '#include <stdio.h>\nint main(){ printf("%d", fopen("/etc/passwd", "r") != 0); }',
    "a write outside": '#include <stdio.h>\nint main(){ printf("%d", fopen("../escaped", "w") != 0 || fopen("/tmp/escaped", "w") != 0); }',
    "its parent": '#include <signal.h>\n#include <unistd.h>\n#include <stdio.h>\nint main(){ printf("%d", kill(getppid(), 9) == 0 || kill(-1, 9) == 0); }',
    "ptrace": '#include <sys/ptrace.h>\n#include <unistd.h>\n#include <stdio.h>\nint main(){ printf("%d", ptrace(PTRACE_ATTACH, getppid(), 0, 0) == 0); }',
    "inherited descriptors": '#include <unistd.h>\n#include <stdio.h>\nint main(){ int n=0; for(int f=3;f<1024;f++) if (write(f,"x",1) > 0) n++; printf("%d", n); }',
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_program_is_contained(executor: Executor, name: str) -> None:
    if executor.report.level != "full":
        pytest.skip("this machine does not contain fully")
    run = await run_one(executor, HOSTILE[name], language="c")
    assert (run.stdout, run.end) == (b"0", "exited"), run.stderr


LEAKS = [
    '#include "/etc/passwd"\nint main(){}',
    '#include </etc/shadow>\nint main(){}',
    '__asm__(".incbin \\"/etc/passwd\\"");\nint main(){}',
    '#include "/proc/self/environ"\nint main(){}',
    '#include "../../source/main.py"\nint main(){}',
]  # fmt: skip


@pytest.mark.parametrize("code", LEAKS)
async def test_compile_stage_reveals_no_system_file(executor: Executor, code: str) -> None:
    if executor.report.level != "full":
        pytest.skip("this machine does not contain fully")
    reply = await executor.run(request(code, language="c"))
    assert reply.compile.status == "error"
    assert b"root:" not in reply.compile.stderr


BOMBS = [
    "template<int N> struct A { static const long v = A<N-1>::v + A<N-2>::v; }; int main() { return A<100000>::v; }",
    "#define A(x) x x x x x x x x\n#define B(x) A(A(A(A(A(A(A(A(x))))))))\nB(B(B(int x;)))\nint main(){}",
    "char big[1ul << 34] = {1};\nint main(){}",
    '#include "/dev/zero"\nint main(){}',
    "#include __FILE__\nint main(){}",
]  # fmt: skip


class OomKillsInTurn(OomKills):
    """A kernel whose count is as listed, one after the other."""

    def __init__(self, counts: Sequence[int]) -> None:
        super().__init__([])
        self._counts = iter(counts)

    def count(self) -> int:
        return next(self._counts)


@pytest.mark.parametrize(
    ("counts", "is_told"),
    [
        ([1, 2, 2, 3], False),  # before and after each of two attempts
        ([1, 1, 1, 2], False),
        ([1, 2, 2, 2], True),
        ([4, 4, 4, 4], True),
    ],
)
async def test_compile_error_is_reported_unless_the_kernel_killed_in_the_last_attempt(
    counts: list[int], is_told: bool
) -> None:
    plan = ExecutorPlan(slots=1, allow_uncontained=True)
    async with started(plan, oom_kills=OomKillsInTurn(counts)) as executor:
        broken = executor.run(request("int main( {", language="cpp"))
        if is_told:
            assert (await broken).compile.status == "error"
        else:
            with pytest.raises(UnexplainedKill):
                await broken


class RunQueuesOf(RunQueues):
    """A kernel in whose run queues each thread has waited for so long."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def read_waits(self, pid: int) -> dict[int, float]:
        return {pid: self._seconds}


SHORT = ExecutorPlan(slots=1, allow_uncontained=True, compile_seconds=3)
"""Nine seconds by the clock."""


@pytest.mark.parametrize(
    ("queued", "is_told"),
    [(0.0, True), (6.0, True), (6.5, False)],  # 6 s leave it as much time by the clock as it may use of a CPU
)
async def test_compile_timeout_is_reported_unless_the_compiler_waited_for_a_cpu(queued: float, is_told: bool) -> None:
    async with started(SHORT, run_queues=RunQueuesOf(queued)) as executor:
        asked = asyncio.create_task(executor.run(request(STAGES["cpp"][1], language="cpp")))
        # It sleeps without having used its time, as no program can make it.
        (pid,) = await until(lambda: processes_named("cc1plus"))
        os.kill(pid, signal.SIGSTOP)
        if is_told:
            assert (await asked).compile.status == "timeout"
        else:
            with pytest.raises(ExecutorLost):
                await asked


async def test_compile_bomb_is_reported_although_the_compiler_waited_for_a_cpu() -> None:
    async with started(SHORT, run_queues=RunQueuesOf(8.0)) as executor:
        reply = await executor.run(request(BOMBS[1], language="cpp"))
    assert reply.compile.status in ("error", "timeout")


@contextmanager
def starved(pid: int) -> Iterator[None]:
    """Give the process a neighbour with some seventy times its weight, on the only CPU that it may use."""
    cpu = min(os.sched_getaffinity(0))
    spin = f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", spin], start_new_session=True) as neighbour:
        try:
            os.sched_setaffinity(pid, {cpu})
            os.setpriority(os.PRIO_PROCESS, pid, 19)
            if (group := Path(f"/proc/{pid}/autogroup")).exists():
                group.write_text("19")
            yield
        finally:
            neighbour.kill()


async def test_right_program_with_a_starved_compiler_gets_no_timeout(executor: Executor) -> None:
    code = STAGES["cpp"][1]
    async with started(SHORT) as hasty:
        asked = asyncio.create_task(hasty.run(request(code, language="cpp")))
        (pid,) = await until(lambda: processes_named("cc1plus"))
        with starved(pid), pytest.raises(ExecutorLost):
            await asked
    assert (await executor.run(request(code, language="cpp"))).runs[0].stdout == b"42"


@pytest.mark.parametrize("code", BOMBS)
async def test_compile_bomb_ends_and_affects_no_other_program(executor: Executor, code: str) -> None:
    wanted = executor.run(request(code, language="cpp"))
    reply, beside = await asyncio.gather(wanted, executor.run(request("print(1)")))
    assert reply.compile.status in ("error", "timeout")
    assert len(reply.compile.stderr) <= 1 << 20
    assert beside.runs[0].stdout == b"1\n"


async def test_a_language_without_a_compiler_is_refused(executor: Executor) -> None:
    with pytest.raises(RequestRefused):
        await executor.run(request("x", language="fortran"))


SECOND_LIFE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>
static char text[1 << 20];
int main(int count, char **names) {
    if (count > 1) { puts("second life"); return 0; }
    int own = open("/proc/self/exe", O_RDONLY);
    long size = read(own, text, sizeof text);
    if (own < 0 || size <= 0 || ftruncate(0, 0) != 0 || pwrite(0, text, size, 0) != size) { puts("no copy"); return 0; }
    dup2(0, 3);
    char *again[] = {names[0], "again", NULL}, *none[] = {NULL};
    syscall(SYS_execveat, 3, "", again, none, AT_EMPTY_PATH);
    printf("refused %d\n", errno);
    return 0;
}
"""


async def test_program_cannot_execute_a_file_written_to_its_stdin(executor: Executor) -> None:
    run = await run_one(executor, SECOND_LIFE, b"x", language="c")
    assert run.stdout in (b"refused 13\n", b"no copy\n"), run
