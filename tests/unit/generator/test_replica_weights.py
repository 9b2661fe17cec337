"""Each answer of a replica says of which weights it is."""

import asyncio

import pytest

from evalrun_generator.endpoints.endpoint import Timed
from evalrun_generator.endpoints.fake_endpoint import FakeEndpoint
from evalrun_generator.endpoints.openai_api import ModelRequest
from evalrun_generator.rollout.replica_endpoint import ReplicaEndpoint
from evalrun_generator.rollout.starts import Start


@pytest.mark.parametrize(
    ("load_format", "engine", "expected"),
    [
        ("auto", {}, ""),
        ("auto", {"weights_sha256": "aa", "model": "/m"}, "aa"),
        ("auto", {"weights_sha256": "aa", "adapter_sha256": "bb"}, "aa+bb"),
        ("auto", {"adapter_sha256": "bb"}, "bb"),
        ("dummy", {"weights_sha256": "aa"}, ""),
    ],
)
def test_weights_version_joins_the_digests_of_weights_and_adapter(
    load_format: str, engine: dict[str, str], expected: str
) -> None:
    assert Start(0, "s", 1, 0.0, load_format=load_format, engine=engine).weights_version == expected


@pytest.mark.parametrize(("model", "expected"), [(None, "model"), ("/checkpoints/10", "/checkpoints/10")])
async def test_an_answer_of_a_replica_has_its_weights_and_its_model(model: str | None, expected: str) -> None:
    replica = ReplicaEndpoint(FakeEndpoint("server"), "replica-0", model, "aa")
    outcome = await replica.ask(ModelRequest("/v1/completions", b"{}"), asyncio.get_running_loop().time() + 60)
    assert isinstance(outcome, Timed)
    assert (outcome.answer.weights_version, outcome.answer.model) == ("aa", expected)
