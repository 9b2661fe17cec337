"""Ordinary programs, what they print and how they end: in the sandbox as under the plain interpreter."""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

# ruff: noqa: E501, ISC004 - a table of programs reads best with a program a line
PROGRAMS: dict[str, tuple[str, bytes, bytes]] = {
    "main guard": ('if __name__ == "__main__":\n    print("main")', b"", b"main\n"),
    "input": ("print(int(input()) + int(input()))", b"1\n2\n", b"3\n"),
    "input at the end": ("try:\n  input()\nexcept EOFError:\n  print('end')", b"", b"end\n"),
    "sys.stdin": ("import sys\nfor line in sys.stdin: print(line.strip()[::-1])", b"ab\ncd", b"ba\ndc\n"),
    "sys.stdin.buffer": ("import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))", b"1 2\n3", b"6\n"),
    "sys.stdin.readline": ("import sys\ninput = sys.stdin.readline\nprint(repr(input()), repr(input()))", b"a\n",
                           b"'a\\n' ''\n"),
    "open(0)": ("print(open(0).read().upper())", b"abc", b"ABC\n"),
    "open /dev/stdin": ("print(open('/dev/stdin').read())", b"abc", b"abc\n"),
    "os.read": ("import os\nprint(os.read(0, 3))", b"abcdef", b"b'abc'\n"),
    "carriage returns stay": ("import sys\nprint(repr(sys.stdin.read()))", b"a\r\nb", b"'a\\r\\nb'\n"),
    "no last newline": ('print("x", end="")', b"", b"x"),
    "sys.exit(0)": ("import sys\nprint(1)\nsys.exit(0)\nprint(2)", b"", b"1\n"),
    "exit()": ("print(1)\nexit()", b"", b"1\n"),
    "os._exit after a flush": ("import os\nprint(1, flush=True)\nos._exit(0)", b"", b"1\n"),
    "os._exit loses the unflushed": ("import os\nprint(1)\nos._exit(0)", b"", b""),
    "os.write": ("import os\nos.write(1, b'raw')", b"", b"raw"),
    "atexit": ("import atexit\natexit.register(print, 'bye')\nprint('hi')", b"", b"hi\nbye\n"),
    "both ways to stdout": ("print('a', flush=True)\nopen('/dev/stdout', 'w').write('b\\n')\nprint('c')", b"",
                            b"a\nb\nc\n"),
    "a file on 1, never closed": ("out = open(1, 'w', closefd=False)\nout.write('kept')", b"", b"kept"),
    "a replaced stdout": ("import sys, io\nsys.stdout = io.TextIOWrapper(io.FileIO(1, 'w'))\nprint('kept')", b"",
                          b"kept\n"),
    "a stdout of its own making": (  # much used in contests
        "import os, sys\nfrom io import BytesIO, IOBase\nclass FastIO(IOBase):\n"
        "  def __init__(self, file):\n    self._fd = file.fileno()\n    self.buffer = BytesIO()\n"
        "    self.write = self.buffer.write\n"
        "  def flush(self):\n    os.write(self._fd, self.buffer.getvalue())\n    self.buffer.truncate(0), "
        "self.buffer.seek(0)\n"
        "class IOWrapper(IOBase):\n  def __init__(self, file):\n    self.buffer = FastIO(file)\n"
        "    self.flush = self.buffer.flush\n    self.write = lambda s: self.buffer.write(s.encode())\n"
        "sys.stdout = IOWrapper(sys.stdout)\nprint(42)", b"", b"42\n"),
    "a destructor": ("class A:\n  def __del__(self): print('gone')\na = A()", b"", b"gone\n"),
    "a generator that is never ended": (
        "def g():\n  try: yield 1\n  finally: print('closed')\nit = g()\nnext(it)", b"", b"closed\n"),
    "a generator's clean-up finds every name": (
        "def g():\n  try: yield 1\n  finally: print(n * 2)\nn = 3\nx = g()\nnext(x)", b"", b"6\n"),
    "a destructor in a cycle finds every name": (
        "n = 3\nclass A:\n  def __del__(self): print(n * 2)\na = A()\na.a = a\ndel a", b"", b"6\n"),
    "a destructor finds the names after it": (
        "class A:\n  def __del__(self): print(late())\na = A()\ndef late(): return [k for k in table]\ntable = 'xy'", b"",
        b"['x', 'y']\n"),
    "its own text by sys.argv": ("import sys\nprint(len(open(sys.argv[0]).read()) > 9)", b"", b"True\n"),
    "two megabytes on stderr": (
        "import sys\nfor n in range(40000): print('debug', n, 'x' * 50, file=sys.stderr)\nprint(1)", b"", b"1\n"),
    "integers of a hundred thousand digits": ("print(len(str(10 ** 100000)), int('7' * 100000) % 7)", b"", b"100001 0\n"),
    "two hundred threads": (
        "import threading, time\nts = [threading.Thread(target=time.sleep, args=(0.2,)) for _ in range(200)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]\nprint(1)", b"", b"1\n"),
    "recursion of three hundred thousand": (
        "import sys\nsys.setrecursionlimit(10**7)\ndef f(n): return 0 if n == 0 else 1 + f(n - 1)\nprint(f(300000))", b"",
        b"300000\n"),
    "recursion in the main thread": (
        "import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return n and 1 + f(n - 1)\nprint(f(100000))", b"",
        b"100000\n"),
    "recursion in a thread of 64 MiB": (
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(64 << 20)\n"
        "def f(n): return n and 1 + f(n - 1)\nt = threading.Thread(target=lambda: print(f(100000)))\nt.start()\nt.join()",
        b"", b"100000\n"),
    "a thread that outlives main": (
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), print('late'))).start()\nprint('main')",
        b"", b"main\nlate\n"),
    "a daemon thread does not": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint('main')",
        b"", b"main\n"),
    "a pool of threads": ("from concurrent.futures import ThreadPoolExecutor\n"
                          "print(sum(ThreadPoolExecutor(4).map(abs, range(-9, 1))))", b"", b"45\n"),
    "asyncio": ("import asyncio\nasync def main():\n  await asyncio.sleep(0)\n  print('async')\nasyncio.run(main())", b"",
                b"async\n"),
    "300 kB of output": ("print('x' * 300_000)", b"", b"x" * 300_000 + b"\n"),
    "10 MB of input": ("import sys\nprint(len(sys.stdin.buffer.read()))", b"x" * 10_000_000, b"10000000\n"),
    "gc off": ("import gc\ngc.disable()\nprint(gc.isenabled())", b"", b"False\n"),
    "gc on": ("import gc\nprint(gc.isenabled())", b"", b"True\n"),
    "the usual modules": (
        "import heapq, collections, itertools, bisect, math, decimal, fractions, re, string, typing, functools, random\n"
        "print(heapq.nsmallest(1, [2, 1]), collections.Counter('aa'), next(itertools.count()), bisect.bisect([1], 1),\n"
        "      math.gcd(4, 6), decimal.Decimal('0.1') * 3, fractions.Fraction(1, 3), re.findall('a', 'aa'),\n"
        "      string.digits, functools.reduce(max, [1, 2]), typing.List, 0 <= random.random() < 1)", b"",
        b"[1] Counter({'a': 2}) 0 1 2 0.3 1/3 ['a', 'a'] 0123456789 2 typing.List True\n"),
    "random differs from run to run": ("import random\nprint(random.getrandbits(64) != 0)", b"", b"True\n"),
    "a file of its own": ("open('a', 'w').write('x')\nimport os\nprint(open('a').read(), os.listdir())", b"",
                          b"x ['a']\n"),
    "its own text": ("print(open(__file__).readline().strip())", b"", b"print(open(__file__).readline().strip())\n"),
    "arguments": ("import os, sys\nprint([os.path.basename(a) for a in sys.argv], __name__)", b"",
                  b"['main.py'] __main__\n"),
    "clean globals": ("print(sorted(name for name in globals() if not name.startswith('__')))", b"", b"[]\n"),
    "unpickles its own classes": ("import pickle\nclass A: x = 1\nprint(pickle.loads(pickle.dumps(A())).x)", b"", b"1\n"),
    "dataclasses": ("from dataclasses import dataclass\n@dataclass\nclass P:\n  x: int\nprint(P(1))", b"", b"P(x=1)\n"),
    "bytes that are no text": ("import sys\nsys.stdout.write(sys.stdin.read())", b"\xff\xfe", b"\xff\xfe"),
    "unicode": ("print(input() + '\u00e9')", "\u4e16\n".encode(), "\u4e16\u00e9\n".encode()),
    "a larger stack": ("import resource\nresource.setrlimit(resource.RLIMIT_STACK, (1 << 29, -1))\nprint('set')", b"",
                       b"set\n"),
    "a caught MemoryError": ("try:\n  bytearray(10 << 30)\nexcept MemoryError:\n  print('caught')", b"", b"caught\n"),
    "the clock": ("import time\nprint(time.time() > 0, time.perf_counter() > 0, time.localtime().tm_year > 2000)", b"",
                  b"True True True\n"),
    "signals of its own": ("import signal\nsignal.signal(signal.SIGALRM, lambda *_: print('rang'))\n"
                           "signal.setitimer(signal.ITIMER_REAL, 0.01)\nsignal.pause()", b"", b"rang\n"),
}  # fmt: skip
"""Program, stdin, stdout; exit code 0."""

EXITS: dict[str, tuple[str, int, bytes, bytes]] = {
    "sys.exit(7)": ("import sys\nsys.exit(7)", 7, b"", b""),
    "sys.exit(-1)": ("import sys\nsys.exit(-1)", 255, b"", b""),
    "sys.exit(2**70)": ("import sys\nsys.exit(2**70)", 255, b"", b""),
    "sys.exit(text)": ("import sys\nprint('out')\nsys.exit('why')", 1, b"out\n", b"why\n"),
    "raise SystemExit": ("raise SystemExit", 0, b"", b""),
    "an exception": ("print('out')\n1 / 0", 1, b"out\n",
                     b'Traceback (most recent call last):\n  File "main.py", line 2, in <module>\n    1 / 0\n    ~~^~~\n'
                     b"ZeroDivisionError: division by zero\n"),
    "an excepthook": ("import sys\nsys.excepthook = lambda *_: print('hooked')\n1 / 0", 1, b"hooked\n", b""),
    "an exception in atexit": ("import atexit\natexit.register(lambda: 1 / 0)\nprint('x')", 0, b"x\n", b"..."),
    "an exception in a thread": ("import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()", 0,
                                 b"", b"..."),
    "a closed stdout": ("import sys\nprint('x')\nsys.stdout.flush()\nsys.stdout.close()", 0, b"x\n", b""),
    "os.abort": ("import os\nos.abort()", -6, b"", b""),
    "a signal to itself": ("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)", -15, b"", b""),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", -2, b"", b"..."),
    "a bad address": ("import ctypes\nctypes.string_at(0)", -11, b"", b""),
    "endless recursion": ("def f(): f()\nf()", 1, b"", b"..."),
}  # fmt: skip
"""Program, exit code (below 0: a signal), stdout, stderr; "..." is anything."""
ENDING = {name: (code, b"", stdout) for name, (code, _, stdout, _) in EXITS.items()}
MEMORY = 4 << 30


def plainly(code: str, stdin: bytes = b"") -> tuple[int, bytes]:
    """Return exit code and stdout of the plain interpreter.

    Its memory is bounded, and it has no limit on the digits of integers, which contest judges have none of either.
    """
    with tempfile.TemporaryDirectory() as directory:
        script, work = Path(directory) / "main.py", Path(directory) / "work"
        script.write_text(code)
        work.mkdir()
        run = subprocess.run(
            [sys.executable, "-E", "-s", "-B", "-X", "int_max_str_digits=0", str(script)],
            cwd=work, input=stdin, capture_output=True, timeout=60, check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
        )  # fmt: skip
    return run.returncode, run.stdout
