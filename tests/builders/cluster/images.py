"""Images built and run for tests: buildah with a storage of its own, runc for containers as restricted as our pods.

Needs root, buildah and runc (Debian: `apt-get install buildah runc`), and a base: the one that EVALRUN_IMAGE_BASE names
(with pip in it, e.g. docker.io/library/python:3.11-slim-bookworm), or one that debootstrap makes here. Storage and base
are kept in `$EVALRUN_CACHE/images` (default `~/.cache/evalrun/images`), the last `MAX_IMAGES` that were used; delete
that directory to start over.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
BASE = "localhost/evalrun-base:bookworm-1"
"""Debian's minimal system and Python 3.11. The number at the end goes up where `_make_base` changes."""
BUILD_BASE = "localhost/evalrun-build-base:bookworm-1"
"""The same with pip."""
USER = 10001
MAX_IMAGES = 60
"""About those of four versions of the checkout. Without a bound 150 took 44 GB within two days."""


class MissingToolsError(Exception):
    """Images cannot be built here; the message says what is missing and how to get it."""


class BuildFailedError(Exception):
    """A build failed; the message is the end of its log."""


@dataclass(frozen=True)
class Completed:
    """How a container ended."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Bases:
    """What stages are built from."""

    runtime: str
    build: str


class Images:
    """Builds stages of our Dockerfiles and runs what comes out."""

    def __init__(self, storage: Path) -> None:
        self._storage = storage
        self._bases: Bases | None = None

    def buildah(self, *arguments: str, seconds: float = 600) -> str:
        """Run buildah on our storage; give what it printed.

        Raises:
            BuildFailedError: it failed.
        """
        place = ["--root", str(self._storage / "root"), "--runroot", str(self._storage / "run")]
        done = subprocess.run(
            ["buildah", *place, *arguments], cwd=ROOT, check=False, capture_output=True, text=True, timeout=seconds
        )
        if done.returncode != 0:
            raise BuildFailedError(f"buildah {' '.join(arguments)}: {(done.stdout + done.stderr)[-3000:]}")
        return done.stdout

    def bases(self) -> Bases:
        """Return the bases, made here where the environment names none."""
        if self._bases is None:
            named = os.environ.get("EVALRUN_IMAGE_BASE")
            self._bases = Bases(named, named) if named else self._made_here()
        return self._bases

    def _made_here(self) -> Bases:
        with self._locked():
            self._make_bases()
        return Bases(BASE, BUILD_BASE)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep others out: tests/e2e and tests/images may run at the same time."""
        with (self._storage / "bases.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _make_bases(self) -> None:
        present = self.buildah("images", "--format", "{{.Name}}:{{.Tag}}").split()
        if BASE not in present:
            self._make_base()
        if BUILD_BASE not in present:
            container = self.buildah("from", BASE).strip()
            install = "apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-pip"
            self.buildah("run", "--isolation", "chroot", container, "--", "sh", "-c", install)
            self.buildah("commit", "--rm", container, BUILD_BASE)

    def _make_base(self) -> None:
        directory = self._storage / "bookworm"
        shutil.rmtree(directory, ignore_errors=True)
        packages = "--include=python3,ca-certificates"
        command = ["debootstrap", "--variant=minbase", packages, "bookworm", str(directory)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=1800)
        if done.returncode != 0:
            raise BuildFailedError(f"{' '.join(command)}: {(done.stdout + done.stderr)[-2000:]}")
        for leftover in (directory / "var" / "cache" / "apt", directory / "var" / "lib" / "apt" / "lists"):
            shutil.rmtree(leftover, ignore_errors=True)
        container = self.buildah("from", "scratch").strip()
        self.buildah("add", container, str(directory), "/")
        self.buildah("commit", "--rm", container, BASE)
        shutil.rmtree(directory)

    def build(
        self, stage: str, *, dockerfile: str = "Dockerfile.judge", cached: bool = True, **arguments: str
    ) -> "Image":
        """Build a stage, every time stamp 0, unless its image is there: even a build of nothing new reads all again.

        Args:
            stage: a target of the Dockerfile.
            dockerfile: relative to the project's root.
            cached: take an image of the same inputs, and layers that an earlier build left. False: build each layer
                again.
            arguments: further build arguments.

        Raises:
            BuildFailedError: the build failed.
        """
        bases = self.bases()
        given = {
            "BASE": bases.runtime, "BUILD_BASE": bases.build, "WHEEL_BASE": bases.build,
            **{name: os.environ[name] for name in ("PIP_INDEX_URL", "PIP_CERT") if name in os.environ},
            **arguments,
        }  # fmt: skip
        flags = [f"--build-arg={name}={value}" for name, value in given.items() if value]
        if "PIP_CERT" in given:  # where the network's own certificate authority must be known to pip
            directory = Path(given["PIP_CERT"]).parent
            # Packages may write there, e.g. Java's keys: what they write is thrown away.
            flags.append(f"--volume={directory}:{directory}:O")
        command = (
            "bud", "--quiet", "--isolation", "chroot", "--timestamp", "0", "--layers", *flags, "--file", dockerfile,
            "--target", stage, "--tag", f"localhost/evalrun-test/{stage}:latest",
        )  # fmt: skip
        record = self._storage / "built" / digest_of_inputs(ROOT, dockerfile, command)
        if not (cached and record.exists() and self._has(record.read_text())):
            built = self.buildah(*command, *([] if cached else ["--no-cache"]), ".", seconds=900)
            record.parent.mkdir(exist_ok=True)
            record.write_text(built.split()[-1])
        record.touch()  # `forget_unused` goes by the time
        return Image(self, record.read_text())

    def forget_unused(self, most: int = MAX_IMAGES) -> None:
        """Remove all images but the last `most` that were used."""
        with self._locked():
            records = sorted((self._storage / "built").glob("*"), key=lambda each: each.stat().st_mtime, reverse=True)
            used = {each.read_text() for each in records[:most]}
            for record in records[most:]:
                digest = record.read_text()
                if digest not in used and self._has(digest):
                    self.buildah("rmi", "--force", digest)
                record.unlink()

    def _has(self, digest: str) -> bool:
        return f"sha256:{digest}" in self.buildah("images", "--all", "--quiet", "--no-trunc").split()


@dataclass(frozen=True)
class Image:
    """A built image."""

    images: Images
    digest: str
    """Of its configuration, which names the content of every layer."""

    def config(self) -> dict[str, Any]:
        """Return the OCI configuration: User, Entrypoint, Env, Labels."""
        described = json.loads(self.images.buildah("inspect", "--type", "image", self.digest))
        config: dict[str, Any] = described["OCIv1"]["config"]
        return config

    def save(self, archive: Path, name: str) -> None:
        """Write an archive that `docker load`, containerd and the loaders of test clusters take.

        Args:
            archive: the file, which must not be there.
            name: the image's name and tag in it.
        """
        self.images.buildah("push", "--quiet", self.digest, f"docker-archive:{archive}:{name}")

    def megabytes(self) -> float:
        """Return the size of what it holds, uncompressed, its base included."""
        with self.mounted() as root:
            total = sum(path.lstat().st_size for path in files_of(root))
        return total / 1e6

    @contextmanager
    def mounted(self) -> Iterator[Path]:
        """Return the image's files; to be looked at only."""
        container = self.images.buildah("from", "--pull-never", self.digest).strip()
        try:
            yield Path(self.images.buildah("mount", container).strip())
        finally:
            self.images.buildah("rm", container)

    def run(self, command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> Completed:
        """Run a command as a pod of ours would.

        As the image's user, root file system read-only, a /tmp of its own, no capability, no new privileges, its own
        network with nothing but loopback. (The container runtime's seccomp profile is missing: containerd brings it.)
        """
        config = self.config()
        variables = [*config["Env"], *(f"{name}={value}" for name, value in (environment or {}).items())]
        name = f"evalrun-{uuid.uuid4().hex[:12]}"
        with self.mounted() as root:
            bundle = root.parent / f"bundle-{name}"
            bundle.mkdir()
            try:
                spec = container_spec(root, command, variables, str(config["User"]))
                (bundle / "config.json").write_text(json.dumps(spec))
                done = subprocess.run(
                    ["runc", "run", "--bundle", str(bundle), name],
                    stdin=subprocess.DEVNULL, check=False, capture_output=True, text=True, timeout=120,
                )  # fmt: skip
            finally:
                shutil.rmtree(bundle)
        return Completed(done.returncode, done.stdout, done.stderr)


def container_spec(root: Path, command: Sequence[str], variables: Sequence[str], user: str) -> dict[str, Any]:
    uid, _, gid = user.partition(":")
    no_capability: dict[str, list[str]] = {
        kind: [] for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")
    }
    safe = ["nosuid", "noexec", "nodev"]
    return {
        "ociVersion": "1.0.2",
        "root": {"path": str(root), "readonly": True},
        "process": {
            "args": list(command), "env": list(variables), "cwd": "/", "noNewPrivileges": True,
            "user": {"uid": int(uid), "gid": int(gid)}, "capabilities": no_capability,
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": [*safe, "mode=1777"]},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": [*safe, "ro"]},
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]},
        ],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")],
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    }  # fmt: skip


def digest_of_inputs(root: Path, dockerfile: str, command: Sequence[str]) -> str:
    """Return a digest of all that a build reads: its command, the Dockerfile, each file that .dockerignore lets in.

    Bases go in by name: the names of those that are made here tell their content.
    """
    ignored = (root / ".dockerignore").read_text()
    places = [root / line[1:] for line in ignored.splitlines() if line.startswith("!")]
    files = [file for place in places for file in (files_of(place) if place.is_dir() else [place])]
    digest = hashlib.sha256(json.dumps([*command, ignored, (root / dockerfile).read_text()]).encode())
    # Byte code reaches no build, and the tests beside this one may be writing it now, under names that soon are gone.
    for file in sorted(file for file in files if "__pycache__" not in file.parts):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"{file.relative_to(root)} {file.stat().st_mode} {content}\n".encode())
    return digest.hexdigest()


def files_of(root: Path) -> Iterator[Path]:
    """Return every file below a directory; links are not followed."""
    for directory, _, names in os.walk(root):
        for name in names:
            yield Path(directory) / name


@lru_cache(maxsize=1)
def find_images() -> Images:
    """Return what builds images here, one object a session.

    Raises:
        MissingToolsError: something that it takes is not there.
    """
    wanted = ["buildah", "runc", *([] if os.environ.get("EVALRUN_IMAGE_BASE") else ["debootstrap"])]
    missing = [program for program in wanted if shutil.which(program) is None]
    if missing:
        raise MissingToolsError(f"no {', '.join(missing)}: on Debian, apt-get install {' '.join(missing)}")
    if os.geteuid() != 0:
        raise MissingToolsError("images are built and run as root here")
    storage = Path(os.environ.get("EVALRUN_CACHE", Path.home() / ".cache" / "evalrun")) / "images"
    storage.mkdir(parents=True, exist_ok=True)
    images = Images(storage)
    images.forget_unused()
    return images
