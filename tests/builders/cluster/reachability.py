"""Tries connections between pods of a cluster, all of a caller's at once."""

import json
from collections.abc import Sequence

from builders.cluster.cluster import Cluster, Object
from reachability import Endpoint, make_endpoint

TRIES = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def is_reached(target):
    try:
        socket.create_connection(target, timeout=SECONDS).close()
    except ConnectionRefusedError:
        return True  # nothing listens, and nothing keeps us away
    except OSError:
        return False
    return True
targets = [tuple(one) for one in json.loads(TARGETS)]
with ThreadPoolExecutor(len(targets)) as threads:
    print(json.dumps(list(threads.map(is_reached, targets))))
"""
SECONDS = 2.0
"""A packet that a policy drops has no answer; the kernel repeats it after one second, when new rules hold."""


def policies_of(cluster: Cluster) -> list[Object]:
    found: list[Object] = cluster.get("default", "networkpolicies", "--all-namespaces")["items"]
    return found


def pod_of(cluster: Cluster, namespace: str, pod: str) -> tuple[Endpoint, str]:
    """Return a pod as policies see it, and its address."""
    found = cluster.get(namespace, "pod", pod)
    return make_endpoint(pod, namespace, found), found["status"]["podIP"]


def try_connections(cluster: Cluster, caller: Endpoint, targets: Sequence[tuple[str, int]]) -> list[bool]:
    program = TRIES.replace("SECONDS", str(SECONDS)).replace("TARGETS", repr(json.dumps(targets)))
    reached: list[bool] = json.loads(cluster.python(caller.namespace, caller.name, program))
    return reached
