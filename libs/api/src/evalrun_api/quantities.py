"""Kubernetes quantities as numbers: `500m`, `64Gi`, `1e3`. Pure."""

import re
from collections.abc import Iterator
from decimal import Decimal

from evalrun_api.api_model import Resources

_PARTS = re.compile(r"([0-9]+(?:\.[0-9]+)?)([munkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,2})?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}


def amount(quantity: str) -> Decimal:
    """Return a quantity's number.

    Raises:
        ValueError: it is no quantity.
    """
    found = _PARTS.fullmatch(quantity)
    if found is None:
        raise ValueError(f"{quantity!r} is no quantity")
    number, suffix = Decimal(found[1]), found[2] or ""
    if suffix in _BINARY:
        return number * Decimal(1024) ** _BINARY[suffix]
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix])
    return number.scaleb(int(suffix[1:])) if suffix else number


def above_limits(resources: Resources) -> Iterator[str]:
    """Yield the names of what is requested beyond its limit: Kubernetes refuses such a container."""
    for name, requested in resources.requests.items():
        limit = resources.limits.get(name)
        if limit is not None and amount(requested) > amount(limit):
            yield name
