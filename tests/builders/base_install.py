"""Runs `evalrun` as in a base install: imports of packages that `requirements/base.txt` does not lock fail.

    python tests/builders/base_install.py plan FILE
    python tests/builders/base_install.py --every-help      # prints each command whose help works

Creating a second environment would need a package index, which tests may not reach.
"""

import importlib.metadata
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def base_distributions() -> set[str]:
    """Return the distributions of a base install, by normalized name."""
    lines = (ROOT / "requirements" / "base.txt").read_text(encoding="utf-8").splitlines()
    locked = {line.partition("==")[0] for line in lines if re.match(r"[A-Za-z0-9]", line)}
    return {normalize(name) for name in locked}


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


class ExtrasMissing(MetaPathFinder):
    """Finds no module of a distribution that belongs to an extra or to development."""

    def __init__(self, installed: set[str], providers: Mapping[str, Sequence[str]]) -> None:
        self._installed = installed
        self._providers = providers

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        providers = self._providers.get(name.partition(".")[0], ())
        if name.startswith("evalrun") or not providers or any(normalize(each) in self._installed for each in providers):
            return None
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def every_help() -> Iterator[str]:
    import click

    from evalrun_cli.commands import evalrun

    waiting: list[tuple[list[str], click.Command]] = [([], evalrun)]
    while waiting:
        path, command = waiting.pop()
        if isinstance(command, click.Group):
            waiting += [([*path, name], each) for name, each in command.commands.items()]
        if path[:1] != ["serve"] or len(path) == 1:  # the services print their own settings, from their own process
            evalrun.main([*path, "--help"], standalone_mode=False)
            yield " ".join(path)


def main() -> None:
    sys.meta_path.insert(0, ExtrasMissing(base_distributions(), importlib.metadata.packages_distributions()))
    if sys.argv[1:] == ["--every-help"]:
        print("\n".join(f"help works: {path}" for path in every_help()))
        return
    from evalrun_cli.__main__ import main as command

    command()


if __name__ == "__main__":
    main()
