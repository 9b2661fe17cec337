"""Programs of each language with many tests: our executor beside the way of a stock SandboxFusion server.

    .venv/bin/python benchmarks/languages.py [--programs 6] [--tests 20] [--rounds 3]

The stock server compiles a program again for each of its tests and starts a process for each. Here the same command
lines do so without a server, without containment and without HTTP, which flatters that side. Both sides run as many
programs at once as there are CPUs, take turns for some rounds, and must print the same. A language whose compiler or
interpreter is missing is left out.
"""

import argparse
import asyncio
import random
import statistics
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from evalrun_executor.api import Limits, RunRequest
from evalrun_executor.cpus import usable_cpus
from evalrun_executor.executor import Executor, ExecutorPlan
from evalrun_executor.toolchain import Toolchain
from evalrun_registry.languages import LANGUAGES

# ruff: noqa: E501 - a program a line
PROGRAMS = {
    "c": '#include <stdio.h>\nint main(void) { long n, x, s = 0; scanf("%ld", &n); while (scanf("%ld", &x) == 1) s += x; printf("%ld\\n", s + NUMBER); }\n',
    "cpp": "#include <bits/stdc++.h>\nint main() { long n, x, s = 0; std::cin >> n; while (std::cin >> x) s += x; std::cout << s + NUMBER << std::endl; }\n",
    "go": 'package main\nimport ("bufio"; "fmt"; "os")\nfunc main() { r := bufio.NewReader(os.Stdin); var n, x, s int; fmt.Fscan(r, &n); for i := 0; i < n; i++ { fmt.Fscan(r, &x); s += x }; fmt.Println(s + NUMBER) }\n',
    "javascript": "const all = require('fs').readFileSync(0, 'utf8').split(/\\s+/).map(Number);\nconsole.log(all.slice(1, all[0] + 1).reduce((s, x) => s + x, 0) + NUMBER);\n",
    "rust": 'use std::io::Read;\nfn main() { let mut t = String::new(); std::io::stdin().read_to_string(&mut t).unwrap(); let s: i64 = t.split_whitespace().skip(1).map(|x| x.parse::<i64>().unwrap()).sum(); println!("{}", s + NUMBER); }\n',
}
"""Programs by language. Each prints the sum of its numbers and of NUMBER, which makes each program different."""


def make_inputs(count: int) -> list[bytes]:
    draw = random.Random(5)
    texts = []
    for _ in range(count):
        numbers = [draw.randrange(1000) for _ in range(100)]
        texts.append(f"{len(numbers)}\n{' '.join(map(str, numbers))}\n".encode())
    return texts


async def run_ours(
    executor: Executor, language: str, codes: list[str], inputs: list[bytes]
) -> tuple[float, list[bytes]]:
    """Return the seconds that all programs took, and their outputs in order."""
    free = asyncio.Semaphore(executor.slots)

    async def one(code: str) -> list[bytes]:
        async with free:
            reply = await executor.run(RunRequest(language, code, inputs, Limits(10.0, 512, 1024)))
        return [run.stdout for run in reply.runs]

    started = time.monotonic()
    outputs = await asyncio.gather(*map(one, codes))
    return time.monotonic() - started, [text for program in outputs for text in program]


def run_stock_way(
    toolchain: Toolchain, language: str, codes: list[str], inputs: list[bytes]
) -> tuple[float, list[bytes]]:
    """Return the same as `run_ours`, for a way in which each test compiles its program first."""

    def one(code: str, stdin: bytes) -> bytes:
        with tempfile.TemporaryDirectory() as place:
            source = toolchain.source(language) if LANGUAGES[language].is_compiled else "main"
            (Path(place) / source).write_text(code)
            if LANGUAGES[language].is_compiled:
                names = {"{source}": source, "{output}": "a.out"}
                command = [names.get(word, word) for word in toolchain.commands(language)[-1]]
                environment = {"PATH": "/usr/bin:/bin", "TMPDIR": place}
                # The compiler gets a separate session, because a killed stage takes its process group with it.
                subprocess.run(
                    command, cwd=place, env=environment, check=True, capture_output=True, start_new_session=True
                )
                start = [f"{place}/a.out"]
            else:
                start = [toolchain.interpreter(language), source]
            return subprocess.run(start, cwd=place, input=stdin, check=True, capture_output=True).stdout

    started = time.monotonic()
    with ThreadPoolExecutor(usable_cpus()) as pool:
        outputs = [*pool.map(lambda pair: one(*pair), [(code, stdin) for code in codes for stdin in inputs])]
    return time.monotonic() - started, outputs


async def measure(programs: int, tests: int, rounds: int) -> None:
    toolchain, inputs = Toolchain(), make_inputs(tests)
    executor = Executor(ExecutorPlan(allow_uncontained=True))
    await executor.start()
    try:
        print(f"{programs} programs of {tests} tests, containment {executor.report.level}; medians of {rounds} rounds")
        print("| language | ours, tests/s | compiled for each test, tests/s | ratio |\n|---|---|---|---|")
        for language, text in PROGRAMS.items():
            if language not in toolchain.languages:
                continue
            ours, theirs = [], []
            for turn in range(rounds):
                codes = [text.replace("NUMBER", str(turn * programs + number)) for number in range(programs)]
                seconds, outputs = await run_ours(executor, language, codes, inputs)
                ours.append(seconds)
                seconds, others = await asyncio.to_thread(run_stock_way, toolchain, language, codes, inputs)
                theirs.append(seconds)
                if outputs != others:
                    raise SystemExit(f"{language}: the two sides print differently")
            count = programs * tests
            ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
            rates = count / statistics.median(ours), count / statistics.median(theirs)
            print(f"| {language} | {rates[0]:.0f} | {rates[1]:.1f} | {ratio:.2f} x |", flush=True)
    finally:
        await executor.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=6)
    parser.add_argument("--tests", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    asyncio.run(measure(options.programs, options.tests, options.rounds))


if __name__ == "__main__":
    main()
