"""Which programs' ends may be seen, so that their objects have to be destroyed one by one.

All is asked of an interpreter of its own, as in the runner: `check` lowers the limits of memory and CPU time, and a
test process that has loaded Arrow is beyond the first already; the compiler then crashed it, or the kernel ended it.
"""

import subprocess
import sys

import pytest

CHECK = """
import sys
from evalrun_executor.contained.python_source import check
checked = check(sys.stdin.buffer.read())
sys.stdout.buffer.write(b"%r " % (checked.code is not None) + checked.stderr)
"""
NEED = """
import sys
from evalrun_executor.contained.python_source import check, needs_teardown
print(needs_teardown(check(sys.stdin.buffer.read()).code))
"""
CONSTANTS = """
import sys
from evalrun_executor.contained.python_source import check
print(ascii(check(sys.stdin.buffer.read()).code.co_consts))
"""


def told_by(script: str, source: bytes) -> bytes:
    return subprocess.run([sys.executable, "-c", script], input=source, capture_output=True, check=True).stdout


@pytest.mark.parametrize(("source", "needed"), [
    ("import sys\nprint(sum(map(int, sys.stdin)))", False),
    ("from collections import deque\nimport heapq, math\nprint(deque([1]))", False),
    ("f = open(1, 'w')\nf.write('x')", True),
    ("import os\nf = os.fdopen(1, 'w')", True),
    ("class A:\n  def __del__(self): print('x')\na = A()", True),
    ("A = type('A', (), {'__del__': lambda self: print(1)})\na = A()", True),
    ("def f():\n  def g():\n    import tempfile\n  return g", True),
    ("from io import BytesIO, IOBase\nclass F(IOBase): pass", True),
    ("exec('x = 1')", True),
    ("from unknown.deep import thing", True),
    ("def g():\n  try: yield\n  finally: print(1)\nit = g()\nnext(it)", True),
    ("def g(c):\n  with c: yield\nit = g()", True),
    ("async def f():\n  try: await g()\n  finally: print(1)", True),
    ("it = (n for n in range(9))\ndef f():\n  try: return 1\n  finally: print(1)", False),
])  # fmt: skip
def test_teardown_is_needed_only_if_code_may_run_at_exit(source: str, needed: bool) -> None:
    assert told_by(NEED, source.encode()) == f"{needed}\n".encode()


@pytest.mark.parametrize(("source", "word"), [
    (b"print(1", b"SyntaxError"), (b"\xff = 1", b"SyntaxError"), (b"# coding: nonsense\n", b"SyntaxError"),
    (b"x = 1\0", b"null bytes"),
    (b"(" * 1000 + b")" * 1000, b"nested"), (b"x = '\xc3\xa9'; return", b"outside function"),
])  # fmt: skip
def test_compile_error_names_the_cause(source: bytes, word: bytes) -> None:
    told = told_by(CHECK, source)
    assert told.startswith(b"False ")
    assert word in told


def test_a_coding_line_is_honoured() -> None:
    assert b"'\\xe9'" in told_by(CONSTANTS, b"# -*- coding: latin-1 -*-\nx = '\xe9'\n")
