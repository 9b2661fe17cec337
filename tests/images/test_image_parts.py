"""What each image would hold of ours, without building one: exactly what its program imports, and its lock the rest."""

import csv
import importlib.metadata
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import grimp
import pytest
from builders.cluster.images import digest_of_inputs

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "install_part.py"
LOCKS = {
    "aggregator": ("aggregator", "data", "generator"),
    "judge": ("judge",),
    "operator": ("operator",),
    "reward": ("reward",),
    "sandbox": ("sandbox",),
    "viewer": ("viewer",),
}
"""The lock files of each image."""
PROGRAMS = {
    "aggregator": ("evalrun_aggregator", "evalrun_data.governance", "evalrun_generator"),
    "judge": ("evalrun_judge",),
    "operator": ("evalrun_operator",),
    "reward": ("evalrun_reward",),
    "sandbox": ("evalrun_sandbox",),
    "viewer": ("evalrun_cli.viewer",),
}
"""The packages of each image that are started; of the viewer's command line it is one command."""
OPTIONAL = {"numpy", "inspect_ai", "onnxruntime", "sigstore"}
"""Imported only where it is there: for numpy scalars among a candidate's values; for Inspect's .eval files; for an
audit with an embedding model; for attestations that no key signed."""
UNTRACED = {"opentelemetry"}
"""The sandbox's image leaves it out: it holds nothing but the executor, and may not reach a collector."""
RAY_SIDE = ("evalrun_generator.rollout", "evalrun_generator.weights")
"""Start replicas on Ray and replace their weights: of Dockerfile.gen, where torch, verl and Ray come from the base."""


def install(part: str, target: Path) -> set[Path]:
    subprocess.run([sys.executable, str(TOOL), part, str(target)], check=True, capture_output=True)
    return {path.relative_to(target) for path in target.rglob("*") if path.is_file()}


@lru_cache(maxsize=1)
def import_graph() -> grimp.ImportGraph:
    patterns = ("libs/*/src/evalrun*", "operator/src/evalrun*", "services/*/src/evalrun*")
    ours = [path.name for pattern in patterns for path in ROOT.glob(pattern)]
    return grimp.build_graph(
        "evalrun_proto", *ours, include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )


def imported_by(programs: tuple[str, ...]) -> set[str]:
    """Every module that the programs' packages lead to, packages above them included."""
    graph = import_graph()
    waiting = [
        module
        for module in graph.modules
        for program in programs
        if (module == program or module.startswith(f"{program}.")) and not module.startswith(RAY_SIDE)
    ]
    seen: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        waiting += graph.find_modules_directly_imported_by(module)
        if "." in module:
            waiting.append(module.rpartition(".")[0])
    return seen


@pytest.mark.parametrize("part", LOCKS)
def test_an_image_holds_every_module_that_its_program_imports(part: str, tmp_path: Path) -> None:
    files = install(part, tmp_path)
    wanted = {module for module in imported_by(PROGRAMS[part]) if module.startswith("evalrun")}
    missing = {
        module
        for module in wanted
        if not {Path(*module.split(".")).with_suffix(".py"), Path(*module.split("."), "__init__.py")} & files
        and not any(Path(*module.split(".")) in file.parents for file in files)
    }
    assert not missing


@pytest.mark.parametrize("part", LOCKS)
def test_an_image_holds_no_package_that_its_program_does_not_import(part: str, tmp_path: Path) -> None:
    packages = {file.parts[0] for file in install(part, tmp_path) if file.suffix == ".py"}
    assert packages == {module.partition(".")[0] for module in imported_by(PROGRAMS[part])} & packages


@pytest.mark.parametrize("part", LOCKS)
def test_an_images_locks_hold_every_distribution_that_its_program_imports(part: str) -> None:
    owners = importlib.metadata.packages_distributions()
    outside = {module.partition(".")[0] for module in imported_by(PROGRAMS[part]) if not module.startswith("evalrun")}
    wanted = outside - set(sys.stdlib_module_names) - OPTIONAL - (UNTRACED if part == "sandbox" else set())
    locked = {
        name
        for lock in LOCKS[part]
        for name in re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements" / f"{lock}.txt").read_text(), re.MULTILINE)
    }
    missing = {
        module for module in wanted if not {owner.lower().replace("_", "-") for owner in owners[module]} & locked
    }
    assert not missing


def test_the_sandbox_holds_nothing_but_the_executor_and_its_server(tmp_path: Path) -> None:
    packages = {file.parts[0] for file in install("sandbox", tmp_path) if file.suffix == ".py"}
    assert packages == {"evalrun_executor", "evalrun_registry", "evalrun_runtime", "evalrun_sandbox"}


def test_the_aggregator_gets_the_api_and_neither_operator_nor_kubernetes_client(tmp_path: Path) -> None:
    packages = {file.parts[0] for file in install("aggregator", tmp_path)}
    assert "evalrun_api" in packages
    assert not packages & {"evalrun_cluster", "evalrun_operator"}


def test_install_viewer_starts_the_command_on_what_its_image_holds(tmp_path: Path) -> None:
    install("viewer", tmp_path)
    # Our packages from there alone: those of the development environment are found by a hook, which is taken out.
    program = (
        "import sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "sys.meta_path = [each for each in sys.meta_path if 'editable' not in repr(each)]\n"
        "sys.path = [each for each in sys.path if not each.endswith('/src') and not each.endswith('/gen')]\n"
        "import evalrun_cli.viewer.commands, evalrun_cli.viewer.namespace_runs, evalrun_cluster.runs\n"
        "from evalrun_cli.__main__ import main\n"
        f"assert evalrun_cli.__file__.startswith({str(tmp_path)!r})\n"
        "main(['view', '--help'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "view [OPTIONS] PLACE..." in done.stdout


def test_install_judge_holds_only_row_names_and_failure_codes_of_its_client(tmp_path: Path) -> None:
    files = install("judge", tmp_path)
    modules = {file.name for file in files if file.parts[0] == "evalrun_client" and file.suffix == ".py"}
    assert modules == {"__init__.py", "failure_codes.py", "fusion_names.py"}


def test_two_installs_are_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    files = install("judge", first)
    assert install("judge", second) == files
    assert all((first / file).read_bytes() == (second / file).read_bytes() for file in files)


def test_the_record_lists_every_file(tmp_path: Path) -> None:
    files = install("sandbox", tmp_path)
    (record,) = [file for file in files if file.name == "RECORD"]
    with (tmp_path / record).open(newline="") as rows:
        assert {Path(row[0]) for row in csv.reader(rows)} == files


def test_an_unknown_part_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(TOOL), "gateway", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "write one of aggregator, judge, operator, reward, sandbox, viewer" in done.stderr


def test_digest_of_image_inputs_changes_with_every_changed_input(tmp_path: Path) -> None:
    (tmp_path / ".dockerignore").write_text("*\n!libs\n!lock.txt\n**/__pycache__\n")
    (tmp_path / "Dockerfile").write_text("FROM base\n")
    (tmp_path / "lock.txt").write_text("grpcio==1\n")
    source = tmp_path / "libs" / "source.py"
    source.parent.mkdir()
    source.write_text("a = 1\n")
    seen = [digest_of_inputs(tmp_path, "Dockerfile", ["--target=judge"])]

    byte_code = source.parent / "__pycache__"
    byte_code.mkdir()
    half_written = byte_code / "source.cpython-311.pyc.139693009422784"
    half_written.symlink_to("gone")  # as one that is renamed while it is read
    for ignored in (tmp_path / "README.md", byte_code / "source.cpython-311.pyc"):
        ignored.write_text("no part of a build")
    assert digest_of_inputs(tmp_path, "Dockerfile", ["--target=judge"]) == seen[0]

    seen.append(digest_of_inputs(tmp_path, "Dockerfile", ["--target=sandbox"]))
    (tmp_path / "Dockerfile").write_text("FROM base AS judge\n")
    seen.append(digest_of_inputs(tmp_path, "Dockerfile", ["--target=judge"]))
    (tmp_path / "lock.txt").write_text("grpcio==2\n")
    seen.append(digest_of_inputs(tmp_path, "Dockerfile", ["--target=judge"]))
    source.write_text("a = 2\n")
    seen.append(digest_of_inputs(tmp_path, "Dockerfile", ["--target=judge"]))
    source.chmod(0o755)
    seen.append(digest_of_inputs(tmp_path, "Dockerfile", ["--target=judge"]))
    source.rename(source.with_name("renamed.py"))
    seen.append(digest_of_inputs(tmp_path, "Dockerfile", ["--target=judge"]))
    assert len(set(seen)) == len(seen)
