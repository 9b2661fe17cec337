"""Programs that try to pass without solving anything. None is accepted, and none makes itself not judged."""

from collections.abc import Iterator

import pytest
from builders.judge.function_tests import WarmForks, adding, judge, standalone

from evalrun_judge.function_tests.session import AssertTests, CheckTest

ASSERTS = adding("assert f(3) == 9", "assert f(4) == 16", "assert f('no') is None", entry="f")
CHECK = CheckTest(
    "def f(x):\n    '''Square numbers.'''\n",
    "def check(candidate):\n    assert candidate(3) == 9\n    assert candidate(4) == 16\n",
    "f",
)


@pytest.fixture(scope="module")
def forks() -> Iterator[WarmForks]:
    warm = WarmForks()
    yield warm
    warm.close()


HEAD = "import atexit, builtins, gc, json, os, signal, sys, threading, types\n"

CHEATS = {
    "exit at import": "sys.exit(0)\ndef f(x): pass",
    "exit in the function": "def f(x): sys.exit(0)",
    "leave at import": "os._exit(0)",
    "leave in the function": "def f(x): os._exit(0)",
    "leave from a thread": "threading.Thread(target=lambda: os._exit(0)).start()\ndef f(x):\n    while True: pass",
    "leave at exit": "atexit.register(lambda: os._exit(0))\ndef f(x): raise ValueError",
    "excepthook": "sys.excepthook = lambda *_: os._exit(0)\ndef f(x): raise ValueError",
    "unraisable hook": "sys.unraisablehook = lambda *_: os._exit(0)\n"
    "class A:\n  def __del__(self): 1/0\ndef f(x): return A()",
    "keyboard interrupt": "def f(x): raise KeyboardInterrupt",
    "generator exit": "def f(x): raise GeneratorExit",
    "assertion error": "def f(x): raise AssertionError",
    "kill itself": "def f(x): os.kill(os.getpid(), signal.SIGKILL)",
    "kill the group": "def f(x): os.killpg(0, signal.SIGKILL)",
    "always equal": "class E:\n  def __eq__(self, o): return True\n"
    "  def __hash__(self): return 0\ndef f(x): return E()",
    "always equal type": "class M(type):\n  def __eq__(s, o): return True\n  __hash__ = type.__hash__\n"
    "class E(metaclass=M): pass\ndef f(x): return E",
    "lying int": "class E(int):\n  def __eq__(self, o): return True\n  def __index__(self): return 9\n"
    "  def __hash__(self): return 9\n  def __repr__(self): return '9'\ndef f(x): return E(1)",
    "lying class": "class E:\n  __class__ = int\n  def __eq__(self, o): return True\ndef f(x): return E()",
    "lying float": "class E(float):\n  def __eq__(self, o): return True\ndef f(x): return E('nan')",
    "lying string": "class E(str):\n  def __eq__(self, o): return True\ndef f(x): return E('x')",
    "lying dict": "class E(dict):\n  def __eq__(self, o): return True\n"
    "  def items(self): return []\ndef f(x): return E(a=1)",
    "lying list": "class E(list):\n  def __eq__(self, o): return True\n  def __iter__(self): return iter([9])\n"
    "def f(x): return E([1])",
    "lying numpy": "m = types.ModuleType('numpy')\nclass ndarray:\n  def tolist(self): return E()\n"
    "class E(int):\n  def __eq__(self, o): return True\nm.ndarray = m.generic = ndarray\nsys.modules['numpy'] = m\n"
    "def f(x): return ndarray()",
    "patched builtins": "for n in ('len','isinstance','repr','sorted','type','issubclass','all','str','int'):\n"
    "  setattr(builtins, n, lambda *a, **k: True)\ndef f(x): return 1",
    "patched equality": "builtins.AssertionError = ValueError\nbuiltins.__debug__ if 0 else 0\ndef f(x): return 1",
    "patched json": "json.dumps = json.JSONEncoder.encode = lambda *a, **k: '9'\n"
    "json.encoder.encode_basestring_ascii = lambda s: '9'\ndef f(x): return 1",
    "patched codec": "from evalrun_executor.calls import encoding, values as v\n"
    "v.encode = encoding.encode = lambda *a: 9\nv.dumps = lambda *a: '[9,null]'\n"
    "v.Encoder.encode = lambda *a, **k: 9\ndef f(x): return 1 if x != 9 else 1",
    "patched stdout": "sys.stdout = sys.stderr = None\ndef f(x): return 1",
    "closed descriptors": "def f(x):\n  for fd in range(64):\n    try: os.close(fd)\n"
    "    except OSError: pass\n  return 9",
    "patched open": "builtins.open = lambda *a, **k: None\ndef f(x): return 1",
    "patched write": "os.write = lambda *a: 0\nos._exit = lambda *a: None\ndef f(x): return 1",
    "recursion limit": "sys.setrecursionlimit(15)\ndef f(x): return 1",
    "own frames": "def f(x):\n  found = []\n  frame = sys._getframe()\n  while frame:\n"
    "    found += [v for v in [*frame.f_locals.values(), *frame.f_globals.values()] if type(v) is int and v == x * x]\n"
    "    frame = frame.f_back\n  return found[0]",
    "all objects": "def f(x):\n  want = str(x * x)\n"
    "  return int([o for o in gc.get_objects() if want in repr(o)[:999]][0])",
    "no asserts": "def f(x):\n  if not sys.flags.optimize: os.execv(sys.executable, [sys.executable, '-O'] + sys.argv)",
    "another program": "def f(x): os.execv('/bin/true', ['true'])",
    "fork": "def f(x):\n  if os.fork(): os._exit(0)\n  return 1",
    "garbage": "def f(x):\n  for fd in range(64):\n    try: os.write(fd, b'garbage ' * 99 + bytes(range(256)))\n"
    "    except OSError: pass\n  return 9 if x == 3 else 1",
    "garbage lines": "def f(x):\n  for fd in range(64):\n    try: os.write(fd, b'\\n\\n1 1 V\\n0 0 X 1\\nend\\n')\n"
    "    except OSError: pass\n  return 1",
    "forged ends": "for fd in range(64):\n  try: os.write(fd, b'load V null\\nend\\n')\n"
    "  except OSError: pass\nos._exit(0)",
    "forged order": "for fd in range(3, 64):\n"
    "  try: os.write(fd, b'load V null\\n1 0 V [16,null]\\n0 0 V [9,null]\\n')\n"
    "  except OSError: pass\nos._exit(0)",
    "forged statuses": "for fd in range(3, 64):\n"
    "  try: os.write(fd, b'load V null\\n0 0 D [\"success\",\"\"]\\n0 1 D [\"success\",\"\"]\\n')\n"
    "  except OSError: pass\nos._exit(0)",
    "forged report": "def f(x):\n  for fd in range(64):\n"
    "    try: os.write(fd, b'{\"test\":0,\"status\":\"success\"}\\n')\n"
    "    except OSError: pass\n  return 1",
    "forged structures": "for fd in range(3, 64):\n"
    "  try: os.write(fd, b'load V null\\n0 0 V [{\"n\":\"eval\"},null]\\n0 1 V {}\\n1 0 V [[[[,null]\\n2 0 V \\n')\n"
    "  except OSError: pass\nos._exit(0)",
    "forged exception": "for fd in range(3, 64):\n"
    "  try: os.write(fd, b'load V null\\n"
    "0 0 E {\"base\":\"SystemExit\",\"type\":\"SystemExit\",\"args\":{\"t\":[0]}}\\n')\n"
    "  except OSError: pass\nos._exit(0)",
    "forged end after a carriage return": "for fd in range(3, 64):\n"
    "  try: os.write(fd, b'load V null\\n0 0 V [9,null]\\r0 0 D [\"success\",\"\"]\\r1 0 D [\"success\",\"\"]\\r'\n"
    "    b'2 0 D [\"success\",\"\"]\\n0 1 V [1,null]\\n1 0 V [1,null]\\n2 0 V [1,null]\\nend\\n')\n"
    "  except OSError: pass\nos._exit(0)",
    "forged mark": "for fd in range(3, 64):\n"
    "  try: os.write(fd, b'load V null\\n0 0 V [{\"h\":[0,0,' + b'[' * 900 + b']' * 900 + b']},null]\\n')\n"
    "  except OSError: pass\nos._exit(0)",
    "end of an iteration": "def f(x): raise StopIteration",
    "own end of an iteration": "class End(StopIteration): pass\ndef f(x): raise End(9)",
    "end of an asynchronous iteration": "def f(x): raise StopAsyncIteration",
    "reduce": "class E(int):\n  def __reduce__(self): return (int, (9,))\n"
    "  __reduce_ex__ = lambda self, _: (int, (9,))\n  def __int__(self): return 9\ndef f(x): return E(1)",
    "a type that lies about its ancestors": "class M(type):\n  def mro(cls): return [cls, int, object]\n"
    "  __instancecheck__ = __subclasscheck__ = lambda *_: True\n"
    "class E(int, metaclass=M):\n  def __eq__(self, o): return True\n  __hash__ = int.__hash__\ndef f(x): return E(1)",
    "values changed later": "l = []\ndef f(x):\n"
    "  threading.Thread(target=lambda: [l.append(9) for _ in range(10 ** 5)]).start()\n  return l",
    "a thread that writes ahead": "def forge():\n  for n in range(3):\n    for fd in range(3, 64):\n"
    "      try: os.write(fd, b'0 %d V [9,null]\\n' % n)\n      except OSError: pass\n"
    "def f(x):\n  forge()\n  return 1",
    "answers cut and written again": "def f(x):\n  for fd in range(3, 64):\n"
    "    try: os.ftruncate(fd, 0); os.lseek(fd, 0, 0); os.write(fd, b'0 0 V [9,null]\\n')\n    except OSError: pass\n"
    "  os._exit(0)",
    "signal while answering": "signal.signal(signal.SIGALRM, lambda *_: os._exit(0))\ndef f(x):\n"
    "  signal.setitimer(signal.ITIMER_REAL, 1e-6)\n  return [x] * 10 ** 5",
    "profile of the harness": "def p(fr, ev, arg):\n  if fr.f_code.co_name == '_call' and ev == 'return': os._exit(0)\n"
    "sys.setprofile(p)\ndef f(x): return 1",
    "collector while answering": "gc.set_threshold(1)\ngc.callbacks.append(lambda *_: os._exit(0))\n"
    "def f(x): return [[n] for n in range(999)]",
    "the judge's exception": "from evalrun_executor.calls import values as v\n"
    "def f(x): raise v.ValueRefusedError('value')",
    "an exception that equals everything": "class E(Exception):\n  def __eq__(s, o): return True\n"
    "  __hash__ = Exception.__hash__\n  def __str__(s): os._exit(0)\ndef f(x): raise E(9)",
    "an exception without an end": "class E(Exception): pass\nE.__cause__ = property(lambda s: E())\ndef f(x): raise E",
    "an exception named as success": "def f(x): raise type('success', (Exception,), {})('')",
    "a mountain of digits": "def f(x): return 1 << 10 ** 7",
    "surrogates": "def f(x): return '\\ud800' * 9",
    "an exception with surrogates": "def f(x): raise type('E', (Exception,), {})('\\ud800')",
    "not a number": "def f(x): return float('nan')",
    "endless recursion": "def f(x): return f(x)",
    "deep recursion": "sys.setrecursionlimit(10**7)\ndef f(x): return f(x)",
    "generator": "def f(x): yield x * x",
    "value that holds itself": "def f(x):\n  l = []\n  l.append(l)\n  return l",
    "value without end": "def f(x):\n  l = [0]\n  for _ in range(60): l = [l, l]\n  return l",
    "changed arguments": "def f(x):\n  g = sys._getframe(1).f_locals\n  g.update(test=1, number=1)\n  return 1",
    "trace of the harness": "def t(fr, ev, arg):\n  fr.f_locals.update(result=9)\n"
    "  return t\nsys.settrace(t)\ndef f(x): return 1",
    "settings of the garbage collector": "gc.disable()\nclass A: pass\ndef f(x): return gc.get_referrers(A)",
}  # fmt: skip


SLOW = {"deep recursion", "value without end", "leave from a thread"}

LOOPS = adding(
    "for got, want in zip(map(f, [1, 2]), [1, 4]): assert got == want",
    "assert all(f(x) == x * x for x in [1, 2])",
    "assert list(map(f, [])) == list(filter(f, [1]))[1:]",
    "got = iter(lambda: f(2), 4)\nassert next(got, None) is None",
    entry="f",
)
"""To what goes through what a function gives, its StopIteration says that there is no more."""


@pytest.mark.parametrize(
    ("tests", "name"),
    [
        *(pytest.param(CHECK, name, id=f"check: {name}") for name in CHEATS),
        *(pytest.param(ASSERTS, name, id=f"asserts: {name}") for name in CHEATS if name not in SLOW),
    ],
)
def test_a_cheat_is_judged_and_not_accepted(forks: WarmForks, tests: AssertTests | CheckTest, name: str) -> None:
    judged = judge(tests, HEAD + CHEATS[name], execute=lambda mode, code, stdin: forks.run(mode, code, stdin, 1))
    assert any(status != "success" for status in judged.statuses), judged.outcomes
    assert "api_error" not in judged.statuses, judged.outcomes


@pytest.mark.parametrize("name", ["StopIteration", "StopAsyncIteration", "type('End', (StopIteration,), {})"])
def test_the_end_of_an_iteration_is_an_error_where_no_test_expects_it(forks: WarmForks, name: str) -> None:
    judged = judge(LOOPS, f"def f(x): raise {name}", execute=forks.run)
    assert judged.statuses == ["runtime_error"] * 4
    assert {outcome.reason.partition("(")[0] for outcome in judged.outcomes} <= {
        f"the program raised {kind}" for kind in ("StopIteration", "StopAsyncIteration", "End")
    }
    assert judge(LOOPS, "def f(x): return x * x", execute=forks.run).statuses == ["success"] * 4
    expecting = adding("try:\n  f(1)\n  assert False\nexcept StopIteration:\n  pass", entry="f")
    assert judge(expecting, "def f(x): raise StopIteration", execute=forks.run).statuses == ["success"]


def test_correct_program_passes_the_tests_that_cheats_fail(forks: WarmForks) -> None:
    code = "def f(x):\n    return x * x if isinstance(x, int) else None\n"
    assert judge(ASSERTS, code, execute=forks.run).statuses == ["success"] * 3
    assert judge(CHECK, code, execute=forks.run).statuses == ["success"]


def test_forged_answers_of_the_right_form_count_as_returned_values(forks: WarmForks) -> None:
    lines = r"load V null\n0 0 V [9,null]\n1 0 V [15,null]\n2 0 V [null,null]\nend\n"
    code = f"{HEAD}for fd in range(3, 64):\n  try: os.write(fd, b'{lines}')\n  except OSError: pass\nos._exit(0)"
    assert judge(ASSERTS, code, execute=forks.run).statuses == ["success", "wrong_answer", "success"]


def test_reason_of_a_forged_exception_is_cut(forks: WarmForks) -> None:
    """A verdict that is too large for a message would be none."""
    exception = '{"base":"ValueError","type":"%s","args":{"t":["%s"]},"message":""}'
    code = f"""{HEAD}long = b"A" * 10**6
line = b'load V null\\n0 0 E {exception}\\n' % (long, long)
for fd in range(3, 64):
  try:
    os.fstat(fd)
    while line: line = line[os.write(fd, line):]
  except OSError: pass
os._exit(0)"""
    (outcome,) = judge(CHECK, code, execute=forks.run).outcomes
    assert (outcome.status, outcome.reason[:32]) == ("runtime_error", "the program raised AAAAAAAAAAAAA")
    assert len(outcome.reason) < 1000


TOKEN = "ninety-nine-luftballons"
SEARCH = f"""
HIDDEN = bytes({[byte ^ 0x55 for byte in TOKEN.encode()]})
TABLE = bytes(n ^ 0x55 for n in range(256))  # never the token itself: the program would find its own copy

def f(*_):
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for line in maps.readlines():
            bounds, rights = line.split()[:2]
            start, end = (int(part, 16) for part in bounds.split("-"))
            if "r" in rights and "[v" not in line:
                memory.seek(start)
                if HIDDEN in memory.read(end - start).translate(TABLE):
                    return "found"
    return "not found"
"""


def test_expected_value_is_not_in_the_programs_memory() -> None:
    """The program searches its whole memory; where the token is an argument, it does find it."""
    expected = judge(adding(f"assert f(0) == {TOKEN!r}", entry="f"), SEARCH, execute=standalone)
    assert [found.actual for found in expected.outcomes] == ["'not found'"], expected.outcomes
    given = judge(adding(f"assert f({TOKEN!r}) == 0", entry="f"), SEARCH, execute=standalone)
    assert [found.actual for found in given.outcomes] == ["'found'"], given.outcomes


def test_expected_values_are_not_sent_to_the_sandbox(forks: WarmForks) -> None:
    tests = adding(
        f"want = [{TOKEN!r}]\nassert f(3) == want, 'told {TOKEN}'", entry="f", setup=f"import math\nX = {TOKEN!r}"
    )
    judged = judge(tests, "def f(x):\n    return x\n", execute=forks.run)
    assert judged.statuses == ["wrong_answer"]
    assert all(TOKEN.encode() not in batch for batch in judged.batches)
    naming = judge(tests, "def f(x):\n    return want\n", execute=forks.run)  # what an assertion uses stays here
    assert naming.statuses == ["runtime_error"]
    assert all(TOKEN.encode() not in batch for batch in naming.batches)


def test_program_that_ends_its_process_fails_only_the_tests_that_it_ends(forks: WarmForks) -> None:
    code = "import os\ndef f(x):\n    return x * x if x == 3 else os._exit(0)\n"
    assert judge(ASSERTS, code, execute=forks.run).statuses == ["success", "runtime_error", "runtime_error"]


def test_cheats_fail_as_stand_alone_programs_too() -> None:
    for name in ("leave in the function", "always equal", "no asserts", "patched codec", "garbage"):
        statuses = judge(CHECK, HEAD + CHEATS[name], execute=standalone).statuses
        assert statuses in (["runtime_error"], ["wrong_answer"]), name


AGREES = """\
    __init__ = lambda *given: None
    __eq__ = __contains__ = __gt__ = lambda *given: True
    __hash__ = lambda self: 1
"""


@pytest.mark.parametrize(
    "code", [f"class Diff:\n{AGREES}", f"class Agrees:\n{AGREES}\ndef Diff(*given): return Agrees()"]
)
@pytest.mark.parametrize(
    "tests",
    [
        AssertTests(["assert Diff([1, 2], [2]) == [1]"], "", "Diff"),
        AssertTests(["assert 1 in Diff([1, 2], [2])"], "", "Diff"),
        AssertTests(["assert Diff([1, 2], [2]) > [0]"], "", "Diff"),
        AssertTests(["assert (Diff([1, 2], [2]), 3) == ([1], 3)"], "", "Diff"),
        AssertTests(["found = Diff([1, 2], [2])\nassert found == [1]"], "", "Diff"),
        CheckTest("", "def check(candidate):\n    assert candidate([1, 2], [2]) == [1]\n", "Diff"),
    ],
    ids=["eq", "in", "gt", "inside a tuple", "by a name", "check"],
)
def test_class_that_equals_everything_fails_for_a_function_with_a_capital(
    forks: WarmForks, tests: AssertTests | CheckTest, code: str
) -> None:
    assert judge(tests, code, execute=forks.run).statuses == ["wrong_answer"]


VEC = """\
class Vec:
    def __init__(self, *xs): self.xs = xs
    def __eq__(self, other): return self.xs == other.xs
    def __add__(self, other): return Vec(*map(sum, zip(self.xs, other.xs)))
    def __mul__(self, by): return Vec(*(x * by for x in self.xs))
"""


def test_a_class_under_test_still_answers_for_its_own_objects(forks: WarmForks) -> None:
    asserts = ["assert Vec(1, 2) + Vec(3, 4) == Vec(4, 6)", "assert Vec(1, 2) * 2 == Vec(2, 4)"]
    tests = AssertTests([*asserts, "assert Vec(1).xs == (1,)"], "", "Vec")
    assert judge(tests, VEC, execute=forks.run).statuses == ["success"] * 3


LIAR = """\
class Liar:
    __module__ = "builtins"
    def __init__(self, told): self.told = told
    def _agree(self, other):
        self.told.append(other)
        return True
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = issubset = _agree
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __float__(self): return 0.0
    def __abs__(self): return 0.0
    def __sub__(self, other): return Liar(self.told)
    __rsub__ = __xor__ = __rxor__ = __mod__ = __mul__ = __pow__ = __sub__
    def __format__(self, spec): return "0.0"
    def __str__(self): return "0"
    def __iter__(self): return iter(())
    def __getitem__(self, key): return 0
    def __enter__(self): return 4
    def __exit__(self, *_): return True
TOLD = []
def f(*_): return TOLD[-1] if TOLD else Liar(TOLD)
def Area(x): return Liar(TOLD)
class Stack:
    top = Liar(TOLD)
    def push(self, x): pass
    def pop(self): return Liar(TOLD)
    def items(self): return [Liar(TOLD)]
"""


@pytest.mark.parametrize(
    "test",
    [
        "s = Stack()\ns.push(2)\nassert s.pop() == 2",
        "assert Stack().pop() == [2]",
        "assert Stack().items() == [2]",
        "assert Stack().top == 2",
        "assert 2 in Stack().pop()",
        "assert abs(Stack().top - 3.14) < 0.01",
        "assert abs(Area(3) - 28.27) < 0.1",
        "assert f(1) == 5 or f(1) == 6",
        "if f(1) != 5:\n    assert f(1) == 5",
        "assert f'{f(1) - 5:.1f}' == '0.0'",
        "assert str(f(1) - 5) == '0'",
        "assert (f(1) - 5)[0] == 0",
        "d = f(1) - 5\nassert d * d < 0.01",
        "assert sorted(f(1) ^ {1, 2}) == []",
        "assert list({1, 2} - f(1)) == []",
        "assert f(1).issubset({1, 2})",
        "assert f(1).__eq__(5)",
        "assert float(f(1)) < 1e-3",
        "with f(1) as value:\n    assert value == 5",
    ],
)
def test_lying_object_returned_by_the_program_does_not_decide_an_assertion(forks: WarmForks, test: str) -> None:
    entry = "Stack" if "Stack" in test else "Area" if "Area" in test else "f"
    (outcome,) = judge(AssertTests([test], "", entry), LIAR, execute=forks.run).outcomes
    assert (outcome.status, outcome.forgeable) == ("wrong_answer", None)


def test_a_value_of_a_test_is_never_sent_to_an_opaque_object(forks: WarmForks) -> None:
    program = LIAR.replace("def f(*_): return TOLD[-1] if TOLD else Liar(TOLD)", "def f(*_): return Liar(TOLD)")
    judged = judge(AssertTests(["try:\n    f(1) == 77123\nfinally:\n    pass"], "", "f"), program, execute=forks.run)
    assert judged.statuses == ["wrong_answer"]
    assert all(b"77123" not in batch for batch in judged.batches)


def test_a_verdict_that_rests_on_operators_of_a_class_names_the_assertion(forks: WarmForks) -> None:
    tests = AssertTests(["assert Vec(1).xs == (1,)", "v = Vec(1, 2)\nassert v == Vec(1, 2)"], "", "Vec")
    first, second = judge(tests, VEC, execute=forks.run).outcomes
    assert (first.status, first.forgeable, first.reason) == ("success", None, "")
    assert (second.status, second.forgeable) == ("success", "own_operators")
    assert second.reason.endswith("decides: assert v == Vec(1, 2)")


@pytest.mark.parametrize(
    "test",
    ["assert not list(map(f, [1, 2]))", "assert all(map(f, [1]))", "assert not list(filter(f, [1]))"],
)
def test_a_forged_end_of_iteration_ends_no_loop_of_the_test(forks: WarmForks, test: str) -> None:
    forged = (
        "import os\nfor fd in range(3, 40):\n    try:\n        os.write(fd, b'load V null\\n0 0 S null\\nend\\n')\n"
    )
    program = forged + "    except OSError:\n        pass\nos._exit(0)\n"
    assert judge(adding(test, entry="f"), program, execute=forks.run).statuses == ["runtime_error"]


@pytest.mark.parametrize(
    "setup",
    [
        "class Ref:\n    def solve(self, x): return x * 7 + 1",
        "class Ref:\n    def __init__(self, x): self.y = x * 7 + 1",
        "class Ref:\n    DATA = {3: 22}",
    ],
)
def test_a_class_of_the_setup_that_knows_answers_stays_with_the_test(forks: WarmForks, setup: str) -> None:
    use = "Ref().solve(3)" if "solve" in setup else "Ref(3).y" if "__init__" in setup else "Ref.DATA[3]"
    tests = AssertTests([f"assert f(3) == {use}"], setup, "f")
    assert judge(tests, f"def f(x): return {use}", execute=forks.run).statuses == ["runtime_error"]
