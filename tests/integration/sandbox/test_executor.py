"""What the executor does with requests: limits, slots, time, faults."""

import asyncio
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from builders.judge.sandbox import busy_descendant, living_children, request, run_one, started, until

from evalrun_executor.api import Limits, RunRequest
from evalrun_executor.errors import Busy, ExecutorLost, RequestRefused, Unusable
from evalrun_executor.executor import Executor, ExecutorPlan
from evalrun_executor.harness import Harness
from evalrun_executor.zygotes.zygote_process import ZygoteProcess

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_runs_come_in_the_order_of_the_inputs(executor: Executor) -> None:
    reply = await executor.run(request("print(int(input()) ** 2)", *[b"%d\n" % number for number in range(100)]))
    assert [run.stdout for run in reply.runs] == [b"%d\n" % number**2 for number in range(100)]


async def test_program_that_does_not_compile_is_not_run(executor: Executor) -> None:
    reply = await executor.run(request("print(1\n", b"", b""))
    assert reply.compile.status == "error"
    assert b'File "main.py", line 1' in reply.compile.stderr
    assert b"SyntaxError: '(' was never closed" in reply.compile.stderr
    assert [run.end for run in reply.runs] == ["not_run", "not_run"]


@pytest.mark.parametrize("code", [
    "x = 1\0", "(" * 100_000 + ")" * 100_000, "-" * 200_000 + "1", "x = " + "1+" * 200_000 + "1", "if 1:\n" * 200,
    "\ud800", "lambda: " * 50_000 + "0",
])  # fmt: skip
async def test_hostile_text_does_not_harm_other_programs(executor: Executor, code: str) -> None:
    reply, beside = await asyncio.gather(executor.run(request(code)), executor.run(request("print(1)")))
    assert reply.compile.status in ("error", "timeout")
    assert beside.runs[0].stdout == b"1\n"


async def test_huge_constant_expression_compiles_and_hits_the_memory_limit(executor: Executor) -> None:
    reply = await executor.run(request("x = " + "*".join(["(1 << 100)"] * 10) + "\ny = 'a' * 10**10\nprint(2)"))
    assert reply.compile.status == "ok"
    assert reply.runs[0].end == "memory_limit"


@pytest.mark.parametrize(("code", "end"), [
    ("while True: pass", "timeout"),
    ("import time\ntime.sleep(1000)", "timeout"),
    ("x = bytearray(10 << 30)", "memory_limit"),
    ("x = []\nwhile True: x.append(bytearray(1 << 20))", "memory_limit"),
    ("while True: print('x' * 10000)", "output_limit"),
    ("import sys\nwhile True: sys.stderr.write('x' * 10000)", "timeout"),
    ("import os, time\nos.write(1, b'x' * 100000)\ntime.sleep(1000)", "output_limit"),
    ("try:\n  while True: print('x' * 10000)\nexcept BaseException:\n  pass\nwhile True: pass", "output_limit"),
])  # fmt: skip
async def test_program_beyond_a_limit_is_stopped(executor: Executor, code: str, end: str) -> None:
    run = await run_one(executor, code, seconds=0.3 if end == "timeout" else 5.0, memory=128, output=64)
    assert (run.end, run.exit_code) == (end, None), run.stderr[-500:]
    assert max(len(run.stdout), len(run.stderr)) <= 64 * 1024


HOLDING = {
    "python": "x = bytearray({0} << 20)\nfor i in range(0, len(x), 4096): x[i] = 1",
    "python objects": "x = [bytes(1000) for _ in range({0} * (1 << 20) // 1080)]",
    "c": "static volatile char a[{0} << 20];\n"
    "int main() {{ for (int i = 0; i < sizeof a; i += 4096) a[i] = 1; return 0; }}",
    "cpp": "#include <vector>\nint main() {{ std::vector<char> v({0} << 20, 1); return v[5] - 1; }}",
}


@pytest.mark.parametrize("what", HOLDING)
async def test_resident_memory_limit_is_exact_to_five_percent(executor: Executor, what: str) -> None:
    language, memory = what.partition(" ")[0], 160
    for share, end in ((0.95, "exited"), (1.05, "memory_limit")):
        run = await run_one(executor, HOLDING[what].format(int(share * memory)), language=language, memory=memory)
        assert run.end == end, (share, run.exit_code, run.peak_memory_mib, run.stderr[-300:])


async def test_output_of_exactly_the_cap_passes(executor: Executor) -> None:
    at_cap, beyond = (
        await executor.run(request("print('x' * int(input()), end='')", b"65536", b"65537", output=64))
    ).runs
    assert (at_cap.end, len(at_cap.stdout)) == ("exited", 65536)
    assert (beyond.end, len(beyond.stdout)) == ("output_limit", 65536)


async def test_cpu_time_limit_excludes_waiting(executor: Executor) -> None:
    run = await run_one(executor, "import time\ntime.sleep(0.4)\nprint('slept')", seconds=0.2)
    assert (run.end, run.stdout) == ("exited", b"slept\n")
    assert run.cpu_seconds < 0.2 < run.wall_seconds


async def test_threads_share_the_cpu_limit(executor: Executor) -> None:
    code = "import hashlib, threading\ndef spin():\n  while True: hashlib.sha256(bytes(1 << 20)).digest()\n"
    code += "for _ in range(4): threading.Thread(target=spin).start()"
    run = await run_one(executor, code, seconds=0.5)
    assert run.end == "timeout"
    assert 0.5 < run.cpu_seconds < 1.5


SPIN = "import time\nwanted = float(input())\nwhile time.process_time() < wanted: pass\nprint('done')"


async def test_run_slightly_above_its_limit_is_confirmed_alone_as_a_timeout(executor: Executor) -> None:
    """It takes 1.1 x the limit alone, too."""
    run = await run_one(executor, SPIN, b"0.55", seconds=0.5)
    assert (run.end, run.confirmed) == ("timeout", True)


async def test_run_that_is_within_its_limit_when_repeated_alone_passes(executor: Executor) -> None:
    """The first run, disturbed by its neighbour, takes 1.1 x the limit; alone it takes less. A file would not tell
    which run it is, as each starts clean, so the program looks at whether anybody else keeps the machine busy."""
    code = (
        "import os, time\nbefore = time.monotonic()\nx = 0\nfor _ in range(20): time.sleep(0.002)\n"
        "late = time.monotonic() - before\nlimit = float(input())\n"
        "while time.process_time() < limit: pass\nprint('done')"
    )
    run = await run_one(executor, code, b"0.3", seconds=0.5)
    assert (run.end, run.confirmed) == ("exited", True)


async def test_a_program_that_got_too_little_of_the_cpu_is_run_again_alone() -> None:
    """Held still until its wall limit, it would have taken 0.8 of its CPU limit; what was left out then runs too."""
    async with started(ExecutorPlan(slots=1, allow_uncontained=True)) as executor:
        running = asyncio.create_task(executor.run(request(SPIN, b"0.8", b"0", b"0", seconds=1.0, stop_after=1)))
        program = await until(lambda: busy_descendant(executor.zygote_pid, 0.72))
        os.kill(program, signal.SIGSTOP)
        runs = (await running).runs
    assert [(run.end, run.confirmed) for run in runs] == [("exited", True)] * 3
    assert runs[0].cpu_seconds < 1.0


@pytest.mark.parametrize(("needs", "end", "confirmed"), [
    ("0.3", "exited", True),
    ("0.7", "exited", False),  # 1.4 x its limit, on a machine that is 2 x slower than at its best: the machine's doing
    ("1.1", "timeout", True),
    ("9", "timeout", True),
])  # fmt: skip
async def test_slow_machine_widens_the_range_of_undecided_cpu_times(needs: str, end: str, confirmed: bool) -> None:
    plan = ExecutorPlan(slots=2, allow_uncontained=True, confirm_pause_seconds=0.0)
    async with started(plan, slowness=2.0) as executor:
        run = await run_one(executor, SPIN, needs.encode(), seconds=0.5)
    assert (run.end, run.confirmed) == (end, confirmed)
    assert run.slowness == (0.0 if needs in ("0.3", "9") else 2.0)  # 9 is too slow at first sight


async def test_sleeping_program_gets_no_more_wall_time_from_a_slow_machine() -> None:
    plan = ExecutorPlan(slots=1, allow_uncontained=True, confirm_pause_seconds=0.0)
    async with started(plan, slowness=4.0) as executor:
        # Its wall limit is 5.2 s. On a machine this slow it is stopped after 5.8 s.
        run = await run_one(executor, "import time\ntime.sleep(5.4)\nprint(1)", seconds=0.1)
    assert (run.end, run.confirmed) == ("timeout", True)


@pytest.mark.parametrize("slowness", [1.0, 1.3, 5.0])
@pytest.mark.parametrize("share", [1.02, 1.15])  # at 1.2 a run is stopped, and its own end takes 10 ms under load
async def test_a_program_just_above_its_limit_is_decided_however_slow_the_machine_stays(
    share: float, slowness: float
) -> None:
    """The calibration's best moment never returns; each run takes as long as the first."""
    plan = ExecutorPlan(slots=1, allow_uncontained=True, confirm_pause_seconds=0.0)
    limit = 0.4
    async with started(plan, slowness) as executor:
        run = await run_one(executor, SPIN, str(share * limit).encode(), seconds=limit)
    sure = share > slowness or slowness == 1.0
    assert (run.end, run.confirmed) == (("timeout", True) if sure else ("exited", False)), run
    assert run.slowness == pytest.approx(slowness)


async def test_a_run_in_doubt_does_not_wait_long_for_empty_slots() -> None:
    plan = ExecutorPlan(slots=2, allow_uncontained=True, confirm_wait_seconds=0.1)
    async with started(plan) as executor:
        beside = asyncio.create_task(executor.run(request(SPIN, b"60", seconds=100.0)))
        await until(lambda: busy_descendant(executor.zygote_pid, 0.1))
        run = await run_one(executor, SPIN, b"0.33", seconds=0.3)
        assert not beside.done()
        beside.cancel()
    assert (run.end, run.confirmed) == ("timeout", True)


async def test_a_program_that_sleeps_is_not_run_again() -> None:
    """As the second run would last as long as the first."""
    async with started(ExecutorPlan(slots=1, allow_uncontained=True)) as executor:
        code = "import time\nprint(time.monotonic(), flush=True)\ntime.sleep(60)"
        began = time.monotonic()
        run = await run_one(executor, code, seconds=0.1)
    assert (run.end, run.confirmed) == ("timeout", True)
    assert float(run.stdout) - began < run.wall_seconds  # the first and only one's


async def test_after_stop_after_timeouts_the_remaining_inputs_are_not_run(executor: Executor) -> None:
    inputs = [b"0", b"9", b"0", b"9", b"0", b"0", b"9", b"0"]
    reply = await executor.run(request(SPIN, *inputs, seconds=0.2, stop_after=2))
    assert [run.end for run in reply.runs] == ["exited", "timeout", "exited", "timeout", *["not_run"] * 4]


async def test_request_beyond_slots_and_queue_is_busy() -> None:
    async with started(ExecutorPlan(slots=1, queue=1, allow_uncontained=True)) as executor:
        slow = request("import time\ntime.sleep(0.5)")
        running = [asyncio.create_task(executor.run(slow)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Busy) as raised:
            await executor.run(slow)
        assert raised.value.retry_after_ms > 0
        assert [reply.runs[0].end for reply in await asyncio.gather(*running)] == ["exited"] * 2


async def test_a_cancelled_run_frees_its_slot_and_ends_its_program(executor: Executor) -> None:
    before = executor.free
    task = asyncio.create_task(executor.run(request("import time\ntime.sleep(1000)", seconds=100)))
    await until(lambda: executor.free < before)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: executor.free == before)


@pytest.mark.parametrize(("wanted", "word"), [
    (request("x", language="cobol"), "language"),
    (request("x", mode="nonsense"), "mode"),
    (request("x", seconds=0), "time_seconds"),
    (request("x", memory=1), "memory_mib"),
    (request("x", output=0), "output_kib"),
    (request("x", stop_after=-1), "stop_after"),
])  # fmt: skip
async def test_unservable_request_is_refused(executor: Executor, wanted: object, word: str) -> None:
    with pytest.raises(RequestRefused, match=word):
        await executor.run(wanted)  # type: ignore[arg-type]  # a RunRequest


async def test_a_dead_zygote_is_an_infra_error_and_the_next_request_has_another() -> None:
    async with started(ExecutorPlan(slots=2, allow_uncontained=True)) as executor:
        running = asyncio.create_task(executor.run(request("import time\ntime.sleep(1000)", seconds=100)))
        await until(lambda: executor.free < 2)
        zygote = executor.zygote_pid
        assert zygote is not None
        os.kill(zygote, signal.SIGKILL)
        with pytest.raises(ExecutorLost):
            await running
        assert (await run_one(executor, "print(1)")).stdout == b"1\n"
        assert executor.zygote_pid != zygote


async def test_a_dead_runner_is_an_infra_error_for_its_request_only() -> None:
    async with started(ExecutorPlan(slots=2, allow_uncontained=True)) as executor:
        endless = request("import time\ntime.sleep(1000)", b"1", b"2", seconds=100)  # one input alone has no runner
        running = asyncio.create_task(executor.run(endless))
        zygote = executor.zygote_pid
        runners = await until(lambda: [pid for pid in living_children(zygote) if living_children(pid)])
        beside = asyncio.create_task(executor.run(request("import time\ntime.sleep(0.3)\nprint('fine')")))
        os.kill(runners[0], signal.SIGKILL)
        with pytest.raises(ExecutorLost):
            await running
        assert (await beside).runs[0].stdout == b"fine\n"


async def test_a_harness_reads_the_input_and_answers_on_stdout(tmp_path: Path) -> None:
    harness = tmp_path / "harness.py"
    harness.write_text("import sys\ndef main(code):\n    print(code[::-1], sys.stdin.read(), __name__)\n")
    async with started(
        ExecutorPlan(slots=1, preload={"mine": Harness((("mine", harness),))}, allow_uncontained=True)
    ) as executor:
        reply = await executor.run(request("not python", b"1", b"2", mode="mine"))
    assert [run.stdout for run in reply.runs] == [
        b"nohtyp ton 1 mine\n",
        b"nohtyp ton 2 mine\n",
    ]


async def test_zygote_compiles_before_the_first_fork(tmp_path: Path) -> None:
    """The first compilation of a process makes the types of `ast`: 1.5 ms."""
    harness = tmp_path / "harness.py"
    harness.write_text("def main(code):\n    print(any(kind.__name__ == 'AST' for kind in object.__subclasses__()))\n")
    async with started(
        ExecutorPlan(slots=1, preload={"mine": Harness((("mine", harness),))}, allow_uncontained=True)
    ) as executor:
        reply = await executor.run(request("not python", mode="mine"))
    assert reply.runs[0].stdout == b"True\n"


async def test_an_interpreter_of_another_version_gets_the_modules_as_text(executor: Executor) -> None:
    plan = executor.zygote_plan
    other = replace(plan, interpreter=replace(plan.interpreter, magic_number="of another version"))
    zygote = await ZygoteProcess.start(other)
    assert zygote.hello["python"] == plan.interpreter.version
    await zygote.close()


async def test_a_harness_that_does_not_load_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    harness = tmp_path / "harness.py"
    harness.write_text("import nothing_of_that_name\n")
    with pytest.raises(Unusable):
        await Executor(
            ExecutorPlan(slots=1, preload={"mine": Harness((("mine", harness),))}, allow_uncontained=True)
        ).start()
    assert "nothing_of_that_name" in capfd.readouterr().err


async def test_low_containment_is_refused_naming_the_missing_features() -> None:
    with pytest.raises(Unusable, match=r"reaches level \w+, required is full: .*seccomp"):
        await Executor(ExecutorPlan(slots=1, contain=False)).start()


async def test_uncontained_executor_reports_level_limits() -> None:
    async with started(ExecutorPlan(slots=1, contain=False, allow_uncontained=True)) as executor:
        reply = await executor.run(request("import os\nif os.fork() == 0:\n  while True: pass\nprint('forked')"))
        assert (reply.level, reply.runs[0].stdout) == ("limits", b"forked\n")


async def test_unusable_interpreter_is_named() -> None:
    with pytest.raises(Unusable, match="/nonexistent/python"):
        await Executor(ExecutorPlan(slots=1, python="/nonexistent/python")).start()


async def test_private_directories_are_removed_with_the_executor(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)  # noqa: ASYNC240 - a test's own directory
    if os.geteuid() == 0 and not all(parent.stat().st_mode & 0o001 for parent in tmp_path.parents):
        pytest.skip("the temporary directory is closed to the candidates' user")
    async with started(ExecutorPlan(slots=1, work_dir=tmp_path, allow_uncontained=True)) as executor:
        await run_one(executor, "open('x', 'w').write('y')")
        assert len([*tmp_path.iterdir()]) == 1  # noqa: ASYNC240
    assert [*tmp_path.iterdir()] == []  # noqa: ASYNC240


async def test_timeout_cut_off_ends_a_batch_with_inputs_left(executor: Executor) -> None:
    """A runner that found nothing to start used to be followed by another, forever."""
    program = "import sys\nif input() == 'hang':\n    while True: pass\nprint('ok')"
    inputs = [b"fine\n", b"hang\n", *[b"fine\n"] * 40]
    request = RunRequest("python", program, inputs, Limits(time_seconds=0.2), stop_after_timeouts=1)
    reply = await executor.run(request)
    ends = [run.end for run in reply.runs]
    assert ends[:2] == ["exited", "timeout"]
    assert set(ends[2:]) == {"not_run"}


async def test_outputs_of_60_mb_are_kept_up_to_the_shared_bound_of_a_request(executor: Executor) -> None:
    """Real contest answers are larger than 1 MiB; six of 60 are more than a sandbox holds for one request."""
    code = "import sys\nn = int(input())\nfor _ in range(n): sys.stdout.write('x' * 1_000_000)"
    reply = await executor.run(request(code, *[b"60\n"] * 6, output=65536, seconds=10.0))
    ends = [run.end for run in reply.runs]
    assert (ends.count("exited"), ends.count("output_limit")) == (4, 2)
    assert {len(run.stdout) for run in reply.runs if run.end == "exited"} == {60_000_000}


async def test_stderr_beyond_limit_keeps_its_end(executor: Executor) -> None:
    run = await run_one(executor, "import sys\nprint('x' * 3_000_000, file=sys.stderr)\nprint(1)\n1 / 0")
    assert (run.stdout, run.exit_code, len(run.stderr) <= 1 << 16) == (b"1\n", 1, True)
    assert run.stderr.endswith(b"ZeroDivisionError: division by zero\n")


LOCKS = """\
import fcntl, os, struct
file = open(os.__file__)
query = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
def attempt(call):
    try: call()
    except OSError as error: return error.errno
    return "done"
print(attempt(lambda: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)),
      attempt(lambda: fcntl.fcntl(file, fcntl.F_GETLK, query)),
      attempt(lambda: fcntl.fcntl(file, 36, query)))
own = open("own", "w")
print(attempt(lambda: fcntl.lockf(own, fcntl.LOCK_EX)))
"""


async def test_locks_on_system_files_carry_no_signal_to_another_slot(executor: Executor) -> None:
    run = await run_one(executor, LOCKS)
    assert run.stdout.splitlines() == [b"1 1 1", b"done"], run.stderr
