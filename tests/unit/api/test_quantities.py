"""Quantities as Kubernetes reads them."""

from decimal import Decimal

import pytest

from evalrun_api.api_model import Resources
from evalrun_api.quantities import above_limits, amount


@pytest.mark.parametrize(
    ("quantity", "number"),
    [
        ("0", "0"), ("4", "4"), ("500m", "0.5"), ("0.5", "0.5"), ("64Gi", str(64 * 1024**3)), ("1Ki", "1024"),
        ("1k", "1000"), ("1e3", "1000"), ("1E-2", "0.01"), ("1E", str(10**18)), ("2u", "0.000002"),
    ],
)  # fmt: skip
def test_amount_converts_each_suffix(quantity: str, number: str) -> None:
    assert amount(quantity) == Decimal(number)


def test_amount_of_other_text_raises_value_error() -> None:
    with pytest.raises(ValueError, match="'a lot' is no quantity"):
        amount("a lot")


@pytest.mark.parametrize(
    ("requests", "limits", "names"),
    [
        ({"cpu": "1"}, {}, []),
        ({"cpu": "500m"}, {"cpu": "1"}, []),
        ({"cpu": "2"}, {"cpu": "1500m"}, ["cpu"]),
        ({"memory": "1Gi"}, {"memory": "1G"}, ["memory"]),
    ],
)
def test_above_limits_names_requests_above_their_limit(
    requests: dict[str, str], limits: dict[str, str], names: list[str]
) -> None:
    assert list(above_limits(Resources(requests=requests, limits=limits))) == names
