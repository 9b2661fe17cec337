"""Builds the pinned programs of the test control plane with Go, once, and prints where they lie.

Usage: `python tools/controlplane/build.py [--source | --built] [TOOL...]`; none: all of kube, etcd, helm, kwok, kueue,
kuberay, versitygw, metrics-server, prometheus-adapter, but not keda. With `--source` it builds nothing and prints where
the source lies, e.g. for CRDs and kwok's stages; with `--built` it fails where it would have to build.

Each tool is a Go module of its own here (their dependency trees conflict): go.mod names the version, go.sum the hashes.
Binaries are kept outside the tree, in `$EVALRUN_CACHE` (default `~/.cache/evalrun`), by the hash of go.mod, go.sum, the
flags and Go's version; an existing binary is not built again. A first build without KEDA takes about 10 minutes on 2
cores, 5 GB of Go's build cache and 2.4 GB of modules. KEDA takes 40 minutes on 2 busy cores: it has the clients of
every cloud.
`EVALRUN_BUILD_NICE` (default 19) is the builds' niceness.
"""

import argparse
import fcntl
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
KUBERNETES = ("1", "36", "3")
KUBERAY = "github.com/ray-project/kuberay/ray-operator"
VERSION_PACKAGE = "k8s.io/component-base/version"


@dataclass(frozen=True)
class Tool:
    """A Go module of this directory and the programs that it builds."""

    name: str
    source: str
    """The module that the programs come from."""
    binaries: tuple[tuple[str, str], ...]
    """Name of the binary and its package."""
    ldflags: str = "-s -w"


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "kube",
            "k8s.io/kubernetes",
            tuple(
                (name, f"k8s.io/kubernetes/cmd/{name}")
                for name in ("kube-apiserver", "kubectl", "kube-controller-manager", "kube-scheduler")
            ),
            # Without the version kubectl and helm see v0.0.0.
            f"-s -w -X {VERSION_PACKAGE}.gitVersion=v{'.'.join(KUBERNETES)} "
            f"-X {VERSION_PACKAGE}.gitMajor={KUBERNETES[0]} -X {VERSION_PACKAGE}.gitMinor={KUBERNETES[1]}",
        ),
        Tool("etcd", "go.etcd.io/etcd/server/v3", (("etcd", "go.etcd.io/etcd/server/v3"),)),
        Tool("helm", "helm.sh/helm/v3", (("helm", "helm.sh/helm/v3/cmd/helm"),)),
        Tool("kwok", "sigs.k8s.io/kwok", (("kwok", "sigs.k8s.io/kwok/cmd/kwok"),)),
        Tool(
            "kuberay",
            "github.com/ray-project/kuberay/ray-operator",
            (("ray-operator", "github.com/ray-project/kuberay/ray-operator"),),
        ),
        Tool(
            "versitygw",
            "github.com/versity/versitygw",
            (("versitygw", "github.com/versity/versitygw/cmd/versitygw"),),
        ),
        Tool("kueue", "sigs.k8s.io/kueue", (("kueue", "sigs.k8s.io/kueue/cmd/kueue"),)),
        Tool(
            "metrics-server",
            "sigs.k8s.io/metrics-server",
            (("metrics-server", "sigs.k8s.io/metrics-server/cmd/metrics-server"),),
        ),
        Tool(
            "prometheus-adapter",
            "sigs.k8s.io/prometheus-adapter",
            (("prometheus-adapter", "sigs.k8s.io/prometheus-adapter/cmd/adapter"),),
        ),
        Tool(
            "keda",
            "github.com/kedacore/keda/v2",
            (
                ("keda-operator", "github.com/kedacore/keda/v2/cmd/operator"),
                ("keda-adapter", "github.com/kedacore/keda/v2/cmd/adapter"),
            ),
        ),
    )
}
SLOW = "keda"
"""The tool that is built only if it is named."""


class BuildError(Exception):
    """Go is missing, or a build failed; the message says which."""


def go_version() -> str:
    """Return Go's version, e.g. `go1.26.8`.

    Raises:
        BuildError: there is no Go.
    """
    try:
        answer = subprocess.run(["go", "env", "GOVERSION"], check=True, capture_output=True, text=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise BuildError("Go is not installed: install Go 1.26 or newer, or set KUBEBUILDER_ASSETS") from error
    return answer.stdout.strip()


def find_tool_directory(tool: Tool, version: str) -> Path:
    digest = hashlib.sha256()
    for part in ("go.mod", "go.sum"):
        digest.update((HERE / tool.name / part).read_bytes())
    digest.update(json.dumps([tool.binaries, tool.ldflags, version]).encode())
    cache = Path(os.environ.get("EVALRUN_CACHE", Path.home() / ".cache" / "evalrun"))
    return cache / "controlplane" / f"{tool.name}-{digest.hexdigest()[:16]}"


def built(tool: Tool, version: str) -> Path:
    """Return the directory that holds a tool's binaries.

    Raises:
        BuildError: a binary is not built yet.
    """
    directory = find_tool_directory(tool, version)
    if not all((directory / name).exists() for name, _ in tool.binaries):
        raise BuildError(f"{tool.name} is not built: run python tools/controlplane/build.py {tool.name}")
    return directory


def build(tool: Tool, version: str) -> Path:
    """Build a tool's missing binaries, and return their directory.

    Raises:
        BuildError: a build failed; Go's messages are on stderr.
    """
    directory = find_tool_directory(tool, version)
    directory.mkdir(parents=True, exist_ok=True)
    niceness = os.environ.get("EVALRUN_BUILD_NICE", "19")
    with (directory / ".lock").open("w") as lock:
        # Two test sessions may want the same binary.
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name, package in tool.binaries:
            binary = directory / name
            if binary.exists():
                continue
            print(f"building {name} ({package})", file=sys.stderr, flush=True)
            unfinished = directory / f"{name}.new"
            done = subprocess.run(
                [
                    "nice",
                    "-n",
                    niceness,
                    "go",
                    "build",
                    "-trimpath",
                    "-ldflags",
                    tool.ldflags,
                    "-o",
                    unfinished,
                    package,
                ],
                cwd=HERE / tool.name,
                env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"},
                stdout=sys.stderr,
            )
            if done.returncode != 0:
                raise BuildError(f"building {name} failed with exit code {done.returncode}")
            unfinished.rename(binary)
    return directory


def source_of(tool: Tool) -> Path:
    """Return where Go keeps the source of the tool's own module, fetching it if need be.

    Raises:
        BuildError: the module cannot be found or fetched.
    """
    version = subprocess.run(
        ["go", "list", "-m", "-f", "{{.Version}}", tool.source], cwd=HERE / tool.name, capture_output=True, text=True
    )
    answer = subprocess.run(
        ["go", "mod", "download", "-json", f"{tool.source}@{version.stdout.strip()}"],
        cwd=HERE / tool.name,
        capture_output=True,
        text=True,
    )
    if version.returncode != 0 or answer.returncode != 0:
        raise BuildError(f"fetching {tool.source}: {version.stderr.strip()} {answer.stderr.strip()}")
    return Path(json.loads(answer.stdout)["Dir"])


def main(arguments: list[str]) -> int:
    """Build the tools that are named, and print the directory of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=f"{', '.join(TOOLS)}; none: all but {SLOW}")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--source", action="store_true", help="print where the source lies, and build nothing")
    instead.add_argument("--built", action="store_true", help="fail where something is to be built, and build nothing")
    options = parser.parse_args(arguments)
    names = options.tools or [name for name in TOOLS if name != SLOW]
    unknown = [name for name in names if name not in TOOLS]
    if unknown:
        parser.error(f"no such tool: {', '.join(unknown)}")
    try:
        version = go_version()
        for name in names:
            tool = TOOLS[name]
            if options.source:
                print(source_of(tool), flush=True)
            else:
                print(built(tool, version) if options.built else build(tool, version), flush=True)
    except BuildError as error:
        print(f"build: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
