"""Finds what a package's modules define, so that a contributor adds a module and no line elsewhere."""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import TypeVar

Base = TypeVar("Base")


def classes_in(package: ModuleType, base: type[Base]) -> list[type[Base]]:
    """Import every module of a package and return the subclasses of `base` that they define, by module and order."""
    modules = [import_module(f"{package.__name__}.{found.name}") for found in iter_modules(package.__path__)]
    return [
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and each is not base and issubclass(each, base) and each.__module__ == module.__name__
    ]
