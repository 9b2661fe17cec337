"""The chart's tokens: one is written where there is none, and never a second one."""

import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from evalrun_cluster.errors import ClusterError, ConflictError, RefusedError
from evalrun_operator.settings import OperatorSettings
from evalrun_operator.shared_tokens import SharedTokens

PLACE = "judging/evalrun-judge-token/token"


@dataclass
class StoredSecrets:
    """Secrets as the API server keeps them: a write names the version that it changes."""

    kept: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    refusal: ClusterError | None = None
    other_writer: str = ""
    """What another operator writes between our read and our write."""

    async def read_secret(self, name: str, namespace: str) -> dict[str, Any] | None:
        if self.refusal is not None:
            raise self.refusal
        secret = self.kept.get((namespace, name))
        if secret is None:
            return None
        read = {**secret, "data": dict(secret["data"])}
        if self.other_writer:
            secret["data"] = {"token": self.other_writer}
            secret["version"] += 1
        return read

    async def fill_secret(self, secret: dict[str, Any], key: str, value: str) -> None:
        kept = self.kept[secret["namespace"], secret["name"]]
        if kept["version"] != secret["version"]:
            raise ConflictError("another version")
        kept["data"][key] = value
        kept["version"] += 1

    def add(self, **data: str) -> None:
        self.kept["judging", "evalrun-judge-token"] = {
            "namespace": "judging", "name": "evalrun-judge-token", "data": data, "version": 1,
        }  # fmt: skip

    def data(self) -> dict[str, str]:
        data: dict[str, str] = self.kept["judging", "evalrun-judge-token"]["data"]
        return data


async def test_a_token_is_written_once_and_once_more_to_another_secret_of_the_name() -> None:
    api = StoredSecrets()
    tokens = SharedTokens(api, [PLACE])
    await tokens.fill()  # the release is being installed: no Secret yet
    assert api.kept == {}
    api.add()
    await tokens.fill()
    first = api.data()["token"]
    assert len(first) == 64
    await tokens.fill()
    assert api.data() == {"token": first}
    api.add()
    await tokens.fill()
    assert len({first, api.data()["token"]}) == 2


@pytest.mark.parametrize("data", [{"token": "mine"}, {"token": "mine", "other": "x"}])
async def test_a_token_that_is_there_stays(data: dict[str, str]) -> None:
    api = StoredSecrets()
    api.add(**data)
    await SharedTokens(api, [PLACE]).fill()
    assert api.data() == data


async def test_of_two_operators_the_first_writer_decides() -> None:
    api = StoredSecrets(other_writer="theirs")
    api.add()
    tokens = SharedTokens(api, [PLACE])
    await tokens.fill()
    assert api.data() == {"token": "theirs"}


async def test_a_refusal_names_the_secret_and_the_remedy_and_keeps_no_other_from_its_token(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = StoredSecrets(refusal=RefusedError("reading Secret evalrun-judge-token: forbidden"))
    with caplog.at_level(logging.WARNING):
        await SharedTokens(api, [PLACE, "judging/evalrun-sandbox-token/token"]).fill()
    assert len(caplog.messages) == 2
    assert "judging/evalrun-judge-token" in caplog.messages[0]
    assert "forbidden. The operator's account needs get and patch" in caplog.messages[0]


@pytest.mark.parametrize("place", ["judge-token", "judging/judge-token", "a/b/c/d", "a//c"])
def test_a_place_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(ValueError, match="shared_token"):
        OperatorSettings(shared_token=[place])
