"""`--live-sandbox own` of `evalrun serve reward`."""

from collections.abc import Mapping, Sequence

import pytest

from evalrun_cli.local.reward_server import take_own_sandbox


@pytest.mark.parametrize(
    ("arguments", "environment", "kept", "is_own"),
    [
        (["--port", "1"], {}, ["--port", "1"], False),
        (["--live-sandbox", "own", "--port", "1"], {}, ["--port", "1"], True),
        (["--live-sandbox=own"], {}, [], True),
        (["--live-sandbox=http://a:1"], {}, ["--live-sandbox", "http://a:1"], False),
        (["--live-sandbox", "http://a:1", "--live-sandbox", "own"], {}, ["--live-sandbox", "http://a:1"], True),
        ([], {"EVALRUN_REWARD_LIVE_SANDBOX": "own"}, [], True),
    ],
)
def test_take_own_sandbox_leaves_the_other_addresses(
    arguments: Sequence[str], environment: Mapping[str, str], kept: list[str], is_own: bool
) -> None:
    assert take_own_sandbox(arguments, environment) == (kept, is_own)
