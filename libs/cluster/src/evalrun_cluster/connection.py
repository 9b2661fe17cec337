"""Where the cluster is and how its API server is verified, for every client of it."""

import ssl

from lightkube import KubeConfig
from lightkube.config.client_adapter import verify_cluster
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import User

from evalrun_runtime.connections.cluster_authority import accept_cluster_authority


def find_cluster() -> SingleConfig | None:
    """Return the cluster of the current context or of this pod; None if neither is there.

    A context may name no user, as that of `kubectl proxy`; lightkube takes none without one.
    """
    config = KubeConfig.from_env().get()
    return None if config is None else config._replace(user=config.user or User())


def make_context(config: SingleConfig) -> ssl.SSLContext:
    """Return how the API server is verified, with the client's certificate."""
    return accept_cluster_authority(verify_cluster(config.cluster, config.user or User(), config.abs_file))
