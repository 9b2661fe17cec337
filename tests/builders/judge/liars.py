"""Programs that return objects which lie: every subset of special methods, in every place that a test looks at.

A liar knows nothing of its problem, so no test may accept it: what it says of itself must never decide about a value of
the test. `constants` are the plain values that it may give away by rule (`bool`, `len`, `str`, `iter`): a problem that
accepts one of them accepts a liar, too, and shows nothing.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

METHODS = {
    "eq": "(self, other): return True",
    "ne": "(self, other): return False",
    "lt": "(self, other): return True",
    "le": "(self, other): return True",
    "gt": "(self, other): return True",
    "ge": "(self, other): return True",
    "hash": "(self): return 0",
    "bool": "(self): return True",
    "len": "(self): return 3",
    "iter": "(self): return iter([E(), E(), E()])",
    "contains": "(self, item): return True",
    "getitem": "(self, key): return E()",
    "getattr": "(self, name):\n        if name[:2] == '__': raise AttributeError(name)\n        return E()",
    "call": "(self, *args, **named): return E()",
    "int": "(self): return random.randrange(9)",
    "float": "(self): return random.random()",
    "complex": "(self): return 0j",
    "index": "(self): return 0",
    "abs": "(self): return 0",
    "round": "(self, digits=0): return 0",
    "neg": "(self): return self",
    "add": "(self, other): return self",
    "radd": "(self, other): return 0",
    "sub": "(self, other): return 0",
    "rsub": "(self, other): return 0",
    "mul": "(self, other): return self",
    "truediv": "(self, other): return self",
    "mod": "(self, other): return 0",
    "pow": "(self, other): return 0",
    "str": "(self): return ''",
    "format": "(self, spec): return '0'",
    "enter": "(self): return self",
    "exit": "(self, *args): return True",
}
"""Special methods by name, with what follows their names."""

BASES = {
    "": "E()",
    "int": "E(987654321)",
    "float": "E(987654321.5)",
    "str": "E('a liar')",
    "list": "E([987654321])",
    "dict": "E({987654321: 1})",
    "tuple": "E((987654321,))",
    "set": "E({987654321})",
}
"""What a liar derives from, with an object that is equal to no expected value by its content."""

MODULES = ("program", "builtins", "numpy")
"""What a liar claims to be from."""

PLACES = {
    "returned": "return made()",
    "item": "return [made(), made(), made()]",
    "pair": "return (made(), made())",
    "value": "return {'a': made(), 0: made()}",
    "nested": "return [[made()], [made()]]",
    "yielded": "return (made() for _ in range(3))",
    "raised": "raise type('Liar', (Exception, E) if E.__bases__ == (object,) else (Exception,), {})()",
    "awaited": "return awaited()",
}
"""Bodies of the function that is tested."""

CONSTANTS = ("True", "3", "''", "[]", "0", "'0'", "None")


@dataclass(frozen=True)
class Liar:
    """One program, without the name that it is to define."""

    methods: tuple[str, ...]
    base: str
    module: str
    place: str

    def program(self, entry: str) -> str:
        """Return the text, for a function or a class of this name; a class answers to any method."""
        lines = ["import random", f"class E({self.base}):", f"    __module__ = {self.module!r}"]
        lines += [f"    def __{name}__{METHODS[name]}" for name in self.methods]
        lines += [f"def made(): return {BASES[self.base]}", "async def awaited(): return made()"]
        body = PLACES[self.place]
        if entry == "Solution":
            lines += ["class Solution:", f"    def anything(self, *args, **named): {body}"]
            lines += ["    def __getattr__(self, name): return self.anything"]
        else:
            lines.append(f"def {entry}(*args, **named): {body}")
        return "\n".join(lines) + "\n"


def constants(entry: str) -> Iterator[str]:
    """Return the programs that give a plain value which a liar may give away."""
    for value in CONSTANTS:
        if entry == "Solution":
            yield f"class Solution:\n    def __getattr__(self, name): return lambda *args, **named: {value}\n"
        else:
            yield f"def {entry}(*args, **named): return {value}\n"


def subsets(seed: int) -> Iterator[tuple[str, ...]]:
    """Return all methods, each alone, all but each, each pair, then random subsets without end."""
    names = tuple(METHODS)
    yield names
    yield from ((name,) for name in names)
    yield from (tuple(other for other in names if other != name) for name in names)
    yield from itertools.combinations(names, 2)
    draws = random.Random(seed)
    while True:
        yield tuple(name for name in names if draws.random() < 0.5)


def liars(seed: int = 0) -> Iterator[Liar]:
    """Return liars without end: subsets in their order, everything else drawn; plain objects half of the time."""
    draws = random.Random(seed)
    for methods in subsets(seed):
        base = draws.choice(tuple(BASES)) if draws.random() < 0.5 else ""
        # A plain type's own layout cannot take every method twice: `__hash__ = None` and the like are Python's affair.
        yield Liar(methods, base, draws.choice(MODULES), draws.choice(tuple(PLACES)))
