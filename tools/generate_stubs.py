"""Generate `proto/gen` from the protos, so that directory = proto package = Python path."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Regenerate every stub; what no proto makes any more goes."""
    source, target = ROOT / "proto", ROOT / "proto" / "gen"
    protos = sorted(str(path.relative_to(source)) for path in (source / "evalrun").rglob("*.proto"))
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    outputs = [f"--{kind}_out={target}" for kind in ("python", "grpc_python")]
    outputs += [f"--mypy_out=quiet:{target}", f"--mypy_grpc_out=quiet:{target}"]
    plugins = [
        f"--plugin=protoc-gen-{name}={Path(sys.executable).parent / f'protoc-gen-{name}'}"
        for name in ("mypy", "mypy_grpc")
    ]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{source}", *plugins, *outputs, *protos]
    subprocess.run(command, check=True, cwd=source)
    for package in sorted({path.parent for path in target.rglob("*.pyi")}):
        (package / "py.typed").touch()  # PEP 561: in each package of a namespace, since `evalrun` itself is none


if __name__ == "__main__":
    main()
