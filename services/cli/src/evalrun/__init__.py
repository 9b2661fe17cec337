"""Evaluate coding models from Python: the commands as functions, and their results as objects.

    import evalrun

    result = evalrun.judge(problems, answers, output="out/first")
    result.metric("humaneval")  # 0.83
    result.failed()  # the verdicts of the answers that failed
    evalrun.compare(baseline, result)

Only the names in `__all__` are public. Every other package that starts with `evalrun_` may change in any release.
"""

from evalrun._calls import RunFailedError, compare, gate, judge, load, run
from evalrun._comparisons import Comparison, GateDecisions, SeveralRuns
from evalrun._results import Estimate, RunResult, TestVerdict, Verdict
from evalrun_results.comparisons.gate import GateDecision, GateResult
from evalrun_runtime.distribution import read_own_version as _own_version
from evalrun_runtime.exits import BadInputError, ExitCode

load_results = load
"""`load` by a longer name, for `from evalrun import load_results`."""

__version__ = _own_version()

__all__ = [
    "BadInputError",
    "Comparison",
    "Estimate",
    "ExitCode",
    "GateDecision",
    "GateDecisions",
    "GateResult",
    "RunFailedError",
    "RunResult",
    "SeveralRuns",
    "TestVerdict",
    "Verdict",
    "__version__",
    "compare",
    "gate",
    "judge",
    "load",
    "load_results",
    "run",
]
