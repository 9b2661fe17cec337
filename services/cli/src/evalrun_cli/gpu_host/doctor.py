"""`evalrun doctor`: reports what this machine provides for runs, and what is missing."""

import asyncio
import os
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from evalrun_cli.gpu_host.environment import known_environments
from evalrun_cli.gpu_host.gpus import Gpu, find_gpus
from evalrun_cli.gpu_host.interpreter import Interpreter, find_interpreter, inspect_interpreter
from evalrun_executor.containment import ContainmentReport
from evalrun_executor.errors import Unusable
from evalrun_executor.executor import Executor, ExecutorPlan
from evalrun_generator.gpu_host.session_directory import PLACE, PREFIX
from evalrun_registry.languages import LANGUAGES
from evalrun_runtime.exits import BadInputError
from evalrun_runtime.host_system import explain_unfit_system

MIN_KERNEL: Final = (5, 13)
MIN_FREE_GIB: Final = 5
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where Linux has it


@dataclass(frozen=True)
class Finding:
    """A line of the report."""

    name: str
    value: str
    lacks: str = ""
    """The missing part, or its remedy; empty: nothing is missing."""
    is_required: bool = True
    """False: programs can be judged on this machine without it."""

    def to_wire(self) -> dict[str, Any]:
        """Return the finding as JSON."""
        return {"name": self.name, "value": self.value, "lacks": self.lacks, "required": self.is_required}


def examine(gpu_python: Path | None) -> list[Finding]:
    """Return the findings about this machine.

    Args:
        gpu_python: interpreter with verl; None: the interpreter that a run would use.
    """
    kernel = kernel_finding(platform.system(), platform.release())
    gpus = find_gpus()
    interpreter = _interpreter(gpu_python, gpus)
    return [
        Finding("Python", f"{platform.python_version()} ({sys.executable})"),
        kernel,
        # On another kernel both findings would repeat the kernel's own.
        *([] if kernel.lacks else _judging_findings()),
        *gpu_findings(gpus),
        *engine_findings(interpreter, has_gpus=bool(gpus)),
        *disk_findings({Path.cwd(): None, PLACE: None, hub_cache(os.environ): None, SHARED_MEMORY: None}),
        leftovers_finding([*PLACE.glob(f"{PREFIX}*")]),
    ]


def _judging_findings() -> list[Finding]:
    containment, languages = asyncio.run(_contain())
    return [containment_finding(containment), languages_finding(languages)]


async def _contain() -> tuple[ContainmentReport | str, Sequence[str]]:
    """Return the containment that programs get here, or the reason why no program can run; and the languages."""
    executor = Executor(ExecutorPlan(slots=1, allow_uncontained=True))
    try:
        await executor.start()
        return executor.report, executor.languages
    except Unusable as error:
        return str(error), ()
    finally:
        await executor.close()


def _interpreter(given: Path | None, gpus: Sequence[Gpu]) -> Interpreter | str:
    environments = known_environments()
    for cpu in (False, True) if gpus else (True, False):
        try:
            return inspect_interpreter(find_interpreter(given, cpu=cpu, environments=environments))
        except BadInputError as error:
            if given is not None:
                return str(error)
    return f"run `evalrun setup gpu{'' if gpus else ' --cpu'}`, or name one with --gpu-python"


def kernel_finding(system: str, release: str) -> Finding:
    """Return the finding of the kernel. Pure."""
    if reason := explain_unfit_system(system, release):
        return Finding("kernel", f"{system} {release}", reason)
    numbers = tuple(int(part) for part in release.replace("-", ".").split(".")[:2] if part.isdecimal())
    lacks = "programs are contained on Linux 5.13 or newer: judge with --sandbox-fusion" if numbers < MIN_KERNEL else ""
    return Finding("kernel", f"{system} {release}", lacks)


def containment_finding(report: ContainmentReport | str) -> Finding:
    """Return the finding of the containment. Pure."""
    if isinstance(report, str):
        return Finding("containment", "no program runs", report)
    return Finding("containment", f"{report.level} (Landlock ABI {report.landlock_abi})", "; ".join(report.missing))


def languages_finding(found: Sequence[str]) -> Finding:
    """Return the finding of the languages. Pure."""
    missing = [language for name, language in LANGUAGES.items() if name not in found]
    packages = sorted({package for language in missing for package in language.packages})
    lacks = f"no {', '.join(each.name for each in missing)}: install {' '.join(packages)}" if missing else ""
    return Finding("languages", ", ".join(found) or "none", lacks, is_required=False)


def gpu_findings(gpus: Sequence[Gpu]) -> list[Finding]:
    """Return the findings of GPUs and driver. Pure."""
    if not gpus:
        lacks = "nvidia-smi shows none: replicas run elsewhere (--endpoint), or tiny models with --gpus cpu"
        return [Finding("GPUs", "none", lacks, is_required=False)]
    shown = [
        f"{gpu.index}: {gpu.name}, {(gpu.memory_mib - gpu.used_mib) / 1024:.0f} of {gpu.memory_mib / 1024:.0f} GiB free"
        for gpu in gpus
    ]
    busy = [gpu.index for gpu in gpus if gpu.used_mib > 0.2 * gpu.memory_mib]
    lacks = f"in use by others: {', '.join(busy)}" if busy else ""
    drivers = ", ".join(sorted({gpu.driver for gpu in gpus}))
    return [
        Finding("GPUs", "; ".join(shown), lacks, is_required=False),
        Finding("driver", f"NVIDIA {drivers}", is_required=False),
    ]


def engine_findings(found: Interpreter | str, *, has_gpus: bool) -> list[Finding]:
    """Return the findings of the interpreter with verl. Pure."""
    if isinstance(found, str):
        return [Finding(name, "none", found, is_required=False) for name in ("verl", "engine")]
    packages = found.packages
    engines = [name for name in ("vllm", "sglang") if name in packages]
    missing = found.lacks(engines[0] if engines else "vllm")
    named = [name for name in ("verl", "ray", "torch", "transformers") if name in packages]
    versions = ", ".join(f"{name} {packages[name]}" for name in named)
    cpu_build = any("+cpu" in packages[name] for name in engines)
    lacks = f"it lacks {', '.join(missing)}: run `evalrun setup gpu`" if missing else ""
    if has_gpus and cpu_build:
        lacks = "its vLLM is the CPU build: run `evalrun setup gpu`"
    return [
        Finding("GPU environment", f"{found.path} (Python {'.'.join(map(str, found.python))})", is_required=False),
        Finding("verl", versions or "none", lacks, is_required=False),
        Finding(
            "engine",
            ", ".join(f"{name} {packages[name]}" for name in engines) or "none",
            "" if engines else "run `evalrun setup gpu`",
            is_required=False,
        ),
    ]


def hub_cache(environment: Mapping[str, str]) -> Path:
    """Return the directory to which models are downloaded. Pure."""
    home = Path(environment.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    return Path(environment.get("HF_HUB_CACHE", home / "hub"))


def disk_findings(places: Mapping[Path, None]) -> list[Finding]:
    """Return the findings of the disks that a run writes to."""
    found = []
    for place in places:
        there = next((path for path in (place, *place.parents) if path.is_dir()), Path("/"))
        free = shutil.disk_usage(there).free / (1 << 30)
        needed = 1 if place == SHARED_MEMORY else MIN_FREE_GIB
        lacks = "" if free >= needed else f"less than {needed} GiB are free"
        found.append(Finding(f"free in {place}", f"{free:.0f} GiB", lacks, is_required=False))
    return found


def leftovers_finding(directories: Sequence[Path]) -> Finding:
    """Return the finding of Ray directories. Pure."""
    names = ", ".join(str(directory) for directory in directories)
    return Finding("Ray directories", names or "none", is_required=False)


def render_findings(findings: Sequence[Finding]) -> list[str]:
    """Return the findings as lines for people. Pure."""
    width = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.name:<{width}}  {finding.value}")
        if finding.lacks:
            lines.append(f"{'':<{width}}  lacks: {finding.lacks}")
    return lines
