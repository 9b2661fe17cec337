"""The test control plane itself: controllers act, pods run on pretended nodes, KubeRay brings a cluster up."""

import json

from builders.cluster.controlplane import ControlPlane

DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "probe", "namespace": "default"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "probe"}},
        "template": {
            "metadata": {"labels": {"app": "probe"}},
            "spec": {"containers": [{"name": "main", "image": "probe:1"}]},
        },
    },
}


def ray_pod(limits: dict[str, str]) -> dict[str, object]:
    return {"spec": {"containers": [{"name": "ray", "image": "ray:1", "resources": {"limits": limits}}]}}


RAY_CLUSTER = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCluster",
    "metadata": {"name": "probe", "namespace": "default"},
    "spec": {
        "rayVersion": "2.60.0",
        "headGroupSpec": {
            "rayStartParams": {"num-cpus": "0"},
            "template": ray_pod({"cpu": "2", "memory": "4Gi"}),
        },
        "workerGroupSpecs": [
            {
                "groupName": "gpu",
                "replicas": 2,
                "minReplicas": 2,
                "maxReplicas": 2,
                "rayStartParams": {},
                "template": ray_pod({"cpu": "6", "memory": "16Gi", "nvidia.com/gpu": "2"}),
            }
        ],
    },
}


def test_a_deployment_gets_running_pods(nodes: ControlPlane) -> None:
    answer = nodes.request("POST", "/apis/apps/v1/namespaces/default/deployments", DEPLOYMENT)
    assert answer.status == 201, answer.message
    nodes.kubectl("wait", "deployment/probe", "--for=condition=Available", "--timeout=100s")
    pods = json.loads(nodes.kubectl("get", "pods", "-l", "app=probe", "-o", "json"))["items"]
    assert {pod["status"]["phase"] for pod in pods} == {"Running"}
    nodes.kubectl("delete", "deployment/probe")


def test_kuberay_brings_a_cluster_up_and_takes_it_down(kuberay: ControlPlane) -> None:
    answer = kuberay.request("POST", "/apis/ray.io/v1/namespaces/default/rayclusters", RAY_CLUSTER)
    assert answer.status == 201, answer.message
    kuberay.kubectl("wait", "raycluster/probe", "--for=condition=RayClusterProvisioned", "--timeout=100s")
    pods = json.loads(kuberay.kubectl("get", "pods", "-l", "ray.io/cluster=probe", "-o", "json"))["items"]
    assert sorted(pod["metadata"]["labels"]["ray.io/node-type"] for pod in pods) == ["head", "worker", "worker"]
    kuberay.kubectl("delete", "raycluster/probe", "--timeout=100s")
    kuberay.kubectl("wait", "pods", "-l", "ray.io/cluster=probe", "--for=delete", "--timeout=100s")
