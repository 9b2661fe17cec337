"""Version of the rules that decide verdicts: a new version invalidates cached verdicts, and makes earlier runs
comparable only after `evalrun rejudge`."""

from typing import Final

JUDGING_RULES: Final = 3
"""1: function tests trusted objects that results handed on. 2: no object of the program decides about a value of the
test; tests that cannot be judged apart run together with the program; standard values cross as themselves.
3: HumanEval+ and MBPP+ are judged apart from the program again; a program that sleeps past its wall limit has timed
out on a slow machine too; a compiler that had no CPU says nothing."""
