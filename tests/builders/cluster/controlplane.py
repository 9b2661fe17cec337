"""A real control plane on loopback for tests: etcd and the API server, started from binaries and stopped with the test.

Where the binaries come from: `KUBEBUILDER_ASSETS` (setup-envtest's convention), else PATH, else `tools/controlplane`,
built once with Go.
"""

import functools
import http.client
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builders.ports import free_ports

ROOT = Path(__file__).parents[3]
BUILDER = ROOT / "tools" / "controlplane" / "build.py"
TOOL_OF = {
    "etcd": "etcd",
    "kube-apiserver": "kube",
    "kube-controller-manager": "kube",
    "kube-scheduler": "kube",
    "kubectl": "kube",
    "kwok": "kwok",
    "ray-operator": "kuberay",
    "helm": "helm",
    "keda-adapter": "keda",
    "keda-operator": "keda",
    "kueue": "kueue",
    "metrics-server": "metrics-server",
    "prometheus-adapter": "prometheus-adapter",
    "versitygw": "versitygw",
}
"""The tool of `tools/controlplane` that builds a program."""
GO = {"GOGC": "400", "GOMEMLIMIT": "1500MiB", **os.environ}
"""The environment of servers in Go: they collect garbage at five times what lives, not at twice. Until the API
server and its controllers are up and know our CRDs and KubeRay's, that is 14 s of CPU instead of 17.
"""
ADMIN_TOKEN = "admin"  # the server listens on loopback for the length of a test


class MissingBinariesError(Exception):
    """There are no binaries and none can be built; the message says what was tried."""


def find_binaries(
    programs: Iterable[str] = ("etcd", "kube-apiserver", "kubectl"), *, build: bool = True
) -> dict[str, Path]:
    """Return the path of each program, building what is nowhere else.

    Args:
        programs: their names.
        build: False: what would have to be built is missing.

    Raises:
        MissingBinariesError: Go is missing too, or the build failed, or would be needed and is not wanted.
    """
    directories = os.environ.get("KUBEBUILDER_ASSETS")
    if not directories and shutil.which("etcd") and shutil.which("kube-apiserver"):
        directories = os.environ.get("PATH")  # never kubectl alone from there: it would be of any version
    found = {}
    for program in programs:
        place = shutil.which(program, path=directories) if directories else None
        if place is not None:
            found[program] = Path(place)
    missing = [program for program in programs if program not in found]
    if missing:
        tools = sorted({TOOL_OF[program] for program in missing})
        flags = () if build else ("--built",)
        built = dict(zip(tools, run_builder(*flags, *tools, wanted=", ".join(missing)), strict=True))
        found.update({program: built[TOOL_OF[program]] / program for program in missing})
    return found


def run_builder(*arguments: str, wanted: str) -> list[Path]:
    """Run `tools/controlplane/build.py`; give the directories that it prints.

    Raises:
        MissingBinariesError: there is no Go, or the build failed.
    """
    if shutil.which("go") is None:
        raise MissingBinariesError(
            f"no {wanted} in KUBEBUILDER_ASSETS or on PATH, and no Go to build tools/controlplane with"
        )
    built = subprocess.run([sys.executable, str(BUILDER), *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        raise MissingBinariesError(f"no {wanted}: see above for why tools/controlplane/build.py failed")
    return [Path(line) for line in built.stdout.split()]


@dataclass(frozen=True)
class Answer:
    """What the API server answered."""

    status: int
    body: dict[str, Any]

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))


@dataclass(frozen=True)
class ControlPlane:
    """A running API server."""

    url: str
    ca_file: Path
    kubeconfig: Path
    directory: Path
    """Where the processes write."""
    kubectl_binary: Path
    restart_server: Callable[[], None]
    """Kills the API server and starts it again at the same address; back once it is ready."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        **query: str,
    ) -> Answer:
        """Send one request as the administrator, on the connection of the one before: `until` asks many times."""
        target = path + ("?" + "&".join(f"{key}={value}" for key, value in query.items()) if query else "")
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": content_type, **(headers or {})}
        sent = None if body is None else json.dumps(body).encode()
        with self._lock:
            kept = self._connection.sock is not None
            try:
                return self._answer(method, target, sent, headers)
            except (ConnectionError, ssl.SSLError, http.client.HTTPException):
                if not kept:
                    raise
            return self._answer(method, target, sent, headers)  # the server was started again since

    def close(self) -> None:
        self._connection.close()

    @functools.cached_property
    def _connection(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self.ca_file))
        return http.client.HTTPSConnection(self.url.removeprefix("https://"), context=context, timeout=60)

    def _answer(self, method: str, target: str, sent: bytes | None, headers: Mapping[str, str]) -> Answer:
        try:
            self._connection.request(method, target, sent, headers)
            with self._connection.getresponse() as response:
                said = response.read()
                # In plain text: a path that is not served (yet), as for a moment after its CRD was made.
                is_json = response.headers.get_content_type() == "application/json"
                return Answer(response.status, json.loads(said) if is_json else {"message": said.decode()})
        except BaseException:
            self._connection.close()  # half an answer may be left on it
            raise

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl; give what it printed on stdout.

        Raises:
            RuntimeError: it failed; the message is what it printed on stderr.
        """
        command = [str(self.kubectl_binary), "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=150)
        if done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout


@contextmanager
def running_control_plane(
    binaries: Mapping[str, Path], directory: Path, api_flags: Sequence[str] = ()
) -> Iterator[ControlPlane]:
    """Start etcd and the API server with their data in `directory`; stop them at the end.

    Args:
        binaries: etcd, kube-apiserver and kubectl, and where they lie.
        directory: for data, keys and logs.
        api_flags: further flags of the API server.

    Raises:
        RuntimeError: a process ended, or did not get ready; the message holds the end of its log.
    """
    etcd_port, peer_port, api_port = free_ports(3)
    keys = _write_keys(directory)
    etcd = [
        str(binaries["etcd"]), f"--data-dir={directory / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn",
        f"--listen-client-urls=http://127.0.0.1:{etcd_port}", f"--advertise-client-urls=http://127.0.0.1:{etcd_port}",
        f"--listen-peer-urls=http://127.0.0.1:{peer_port}", f"--initial-advertise-peer-urls=http://127.0.0.1:{peer_port}",
        f"--initial-cluster=default=http://127.0.0.1:{peer_port}",
    ]  # fmt: skip
    apiserver = [
        str(binaries["kube-apiserver"]), f"--etcd-servers=http://127.0.0.1:{etcd_port}", "--bind-address=127.0.0.1",
        f"--secure-port={api_port}", f"--cert-dir={directory / 'certs'}", "--service-cluster-ip-range=10.96.0.0/16",
        "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={keys / 'sa.pub'}",
        f"--service-account-signing-key-file={keys / 'sa.key'}", f"--token-auth-file={keys / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC", "--allow-privileged=true", "--endpoint-reconciler-type=none",
        *api_flags,
    ]  # fmt: skip
    with ExitStack() as stack:
        stack.enter_context(running_process("etcd", etcd, directory))

        def start() -> "subprocess.Popen[bytes]":
            return stack.enter_context(running_process("kube-apiserver", apiserver, directory))

        server = start()

        def restart() -> None:
            nonlocal server
            server.kill()  # asked to end, it would hold its port for some seconds
            server.wait()
            server = start()
            _wait_until_ready(plane, server, directory / "kube-apiserver.log")

        url = f"https://127.0.0.1:{api_port}"
        ca_file = directory / "certs" / "apiserver.crt"  # the server's own certificate, made at its start
        kubeconfig = _write_kubeconfig(directory, url, ca_file)
        plane = ControlPlane(url, ca_file, kubeconfig, directory, binaries["kubectl"], restart)
        _wait_until_ready(plane, server, directory / "kube-apiserver.log")
        stack.callback(plane.close)
        yield plane


def until(check: Callable[[], bool], what: str, limit: float = 60.0) -> None:
    """Ask again and again until `check` holds, where the API offers nothing to wait on.

    Raises:
        TimeoutError: it did not hold within `limit` seconds; the message says `what` was waited for.
    """
    deadline = time.monotonic() + limit
    while True:
        asked = time.monotonic()
        if check():
            return
        now = time.monotonic()
        if now > deadline:
            raise TimeoutError(f"waited {limit} s for {what}")
        time.sleep(min(0.5, max(0.05, now - asked)))  # a check that starts kubectl would else take most of a core


def _write_keys(directory: Path) -> Path:
    keys = directory / "keys"
    keys.mkdir(parents=True)
    private, public = str(keys / "sa.key"), str(keys / "sa.pub")
    subprocess.run(["openssl", "genrsa", "-out", private, "2048"], check=True, capture_output=True)
    subprocess.run(["openssl", "rsa", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    (keys / "tokens.csv").write_text(f'{ADMIN_TOKEN},admin,admin,"system:masters"\n')
    return keys


def _write_kubeconfig(directory: Path, url: str, ca_file: Path) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": str(ca_file)}}],
        "users": [{"name": "admin", "user": {"token": ADMIN_TOKEN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "current-context": "test",
    }
    path = directory / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


@contextmanager
def running_process(name: str, command: Sequence[str], directory: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program, its output in `NAME.log`; end it on the way out."""
    with (directory / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=directory, env=GO)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_ready(plane: ControlPlane, server: "subprocess.Popen[bytes]", log: Path, limit: float = 120) -> None:
    """Ask until the server is ready; waiting on the process itself sees at once where it has ended."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        try:
            code = server.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            if _is_ready(plane):
                return
        else:
            raise RuntimeError(f"kube-apiserver ended with {code}: {_tail(log)}")
    raise RuntimeError(f"kube-apiserver was not ready within {limit} s: {_tail(log)}")


def _is_ready(plane: ControlPlane) -> bool:
    if not plane.ca_file.exists():
        return False
    request = urllib.request.Request(f"{plane.url}/readyz", headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
    try:
        context = ssl.create_default_context(cafile=str(plane.ca_file))
        with urllib.request.urlopen(request, context=context, timeout=5):
            return True
    except OSError:  # refused, or 500 while it starts
        return False


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]
