"""The published verl's scorers in a directory of their own, without what the package itself imports: torch and Ray."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

IMPORTED = ("sympy", "mpmath", "pylatexenc")


@contextmanager
def copy_scorers(gen_cpu: Path, others: Sequence[Path] = ()) -> Iterator[str]:
    """Copy verl's scorers and what they import; pytest's own directories are closed to the sandbox's user.

    Args:
        gen_cpu: the interpreter that has them.
        others: directories of further packages.
    """
    (site,) = (gen_cpu.parents[1] / "lib").glob("python3*/site-packages")
    with TemporaryDirectory(prefix="packages-") as packages:
        Path(packages).chmod(0o755)
        utils = Path(packages) / "verl" / "utils"
        shutil.copytree(site / "verl" / "utils" / "reward_score", utils / "reward_score")
        shutil.copy(site / "verl" / "utils" / "import_utils.py", utils)
        for package in (utils.parent, utils):
            (package / "__init__.py").touch()
        for directory in (*(site / name for name in IMPORTED), *others):
            ignored = shutil.ignore_patterns("tests", "__pycache__")
            shutil.copytree(directory, Path(packages) / directory.name, ignore=ignored)
        yield packages
