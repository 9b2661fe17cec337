"""Where the cluster is, by the files that name one."""

from pathlib import Path

import pytest

from evalrun_cluster.connection import find_cluster
from evalrun_cluster.runs import connect

# As for `kubectl proxy`, which asks nobody who he is.
WITHOUT_USER = """\
apiVersion: v1
kind: Config
current-context: proxy
clusters: [{name: proxy, cluster: {server: "http://127.0.0.1:8001"}}]
contexts: [{name: proxy, context: {cluster: proxy}}]
"""


async def test_context_without_a_user_is_connected_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text(WITHOUT_USER)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    found = find_cluster()
    assert found is not None
    assert found.cluster.server == "http://127.0.0.1:8001"
    connect(None)
