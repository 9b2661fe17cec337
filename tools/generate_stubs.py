"""Generate `proto/gen` from the protos: `evalrun.judge.v1` becomes the Python package `evalrun_proto.judge.v1`."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "evalrun_proto"
"""Python package of the stubs. The protos and everything on the wire are called `evalrun`."""
STUB_MODULE = re.compile(r"\bevalrun(?=\.\w+\.v\d+(?: import |\.)\w+_pb2\b)")
"""Matches `evalrun` in the name of a stub's module, and not in the name of a message or service."""


def main() -> None:
    """Regenerate every stub and remove the stubs of deleted protos.

    A file that stays the same is not touched: tests that run meanwhile import from the directory.
    """
    target = ROOT / "proto" / "gen"
    with tempfile.TemporaryDirectory() as made:
        generate(ROOT / "proto", Path(made))
        files = {path.relative_to(made): path.read_bytes() for path in Path(made).rglob("*") if path.is_file()}
    there = {path.relative_to(target) for path in target.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    for path in there - files.keys():
        (target / path).unlink()
    for path, content in files.items():
        if path not in there or (target / path).read_bytes() != content:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_bytes(content)


def generate(source: Path, target: Path) -> None:
    """Write the stubs of every proto of a directory to an empty directory."""
    protos = sorted(str(path.relative_to(source)) for path in (source / "evalrun").rglob("*.proto"))
    outputs = [f"--{kind}_out={target}" for kind in ("python", "grpc_python")]
    outputs += [f"--mypy_out=quiet:{target}", f"--mypy_grpc_out=quiet:{target}"]
    plugins = [
        f"--plugin=protoc-gen-{name}={Path(sys.executable).parent / f'protoc-gen-{name}'}"
        for name in ("mypy", "mypy_grpc")
    ]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{source}", *plugins, *outputs, *protos]
    subprocess.run(command, check=True, cwd=source)
    # protoc derives a stub's Python package from the path of its proto, which the descriptors carry too.
    (target / "evalrun").rename(target / PACKAGE)
    for stub in (target / PACKAGE).rglob("*_pb2*"):
        stub.write_text(STUB_MODULE.sub(PACKAGE, stub.read_text()))
    for package in sorted({path.parent for path in target.rglob("*.pyi")}):
        # PEP 561 asks for the file in each package of a namespace, since `evalrun_proto` itself is no package.
        (package / "py.typed").touch()


if __name__ == "__main__":
    main()
