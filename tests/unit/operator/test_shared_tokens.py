"""The chart's tokens: one is written where there is none, and never a second one."""

import logging

import pytest
from builders.operator.stored_secrets import StoredSecrets

from evalrun_cluster.errors import RefusedError
from evalrun_operator.settings import OperatorSettings
from evalrun_operator.shared_tokens import SharedTokens

PLACE = "judging/evalrun-judge-token/token"
NAME = "evalrun-judge-token"


async def test_a_token_is_written_once_and_once_more_to_another_secret_of_the_name() -> None:
    api = StoredSecrets()
    tokens = SharedTokens(api, [PLACE])
    await tokens.fill()  # the release is being installed: no Secret yet
    assert api.kept == {}
    api.add(NAME)
    await tokens.fill()
    first = api.texts(NAME)["token"]
    assert len(first) == 64
    await tokens.fill()
    assert api.texts(NAME) == {"token": first}
    api.add(NAME)
    await tokens.fill()
    assert len({first, api.texts(NAME)["token"]}) == 2


@pytest.mark.parametrize("data", [{"token": "mine"}, {"token": "mine", "other": "x"}])
async def test_a_token_that_is_there_stays(data: dict[str, str]) -> None:
    api = StoredSecrets()
    api.add(NAME, data)
    await SharedTokens(api, [PLACE]).fill()
    assert api.texts(NAME) == data


async def test_token_of_the_first_of_two_operators_is_kept() -> None:
    api = StoredSecrets(other_writer={"token": "theirs"})
    api.add(NAME)
    tokens = SharedTokens(api, [PLACE])
    await tokens.fill()
    assert api.texts(NAME) == {"token": "theirs"}


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
def test_malformed_place_of_the_shared_token_is_refused(place: str) -> None:
    with pytest.raises(ValueError, match="shared_token"):
        OperatorSettings(shared_token=[place])
