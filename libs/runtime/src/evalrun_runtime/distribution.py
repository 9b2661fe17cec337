"""The installed distribution: its version, how an extra of it is installed, and whether a stranger's is beside it.

The distribution is called `kube-evalrun`: on the Python index `evalrun` is another project's, with a package and a
command of the same name.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from evalrun_runtime.exits import BadInputError

NAME = "kube-evalrun"
OTHER = "evalrun"
"""The other project, on the Python index."""


def read_own_version() -> str:
    """Return the version of the installed distribution."""
    # The import takes a quarter of the time of `evalrun --help`.
    from importlib.metadata import version

    return version(NAME)


def describe_install(extra: str) -> str:
    """Return how to install an extra, from a checkout and from the wheel."""
    wheel = f"{NAME.replace('-', '_')}-VERSION-py3-none-any.whl"
    return f"in a checkout pip install '.[{extra}]', with the wheel pip install './{wheel}[{extra}]'"


def refuse_other_distribution() -> None:
    """Refuse to work where the other project is installed too: their files have overwritten each other.

    Raises:
        BadInputError: it names the commands that mend the environment.
    """
    if not has_metadata(OTHER, sys.path):
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version(OTHER)
    except PackageNotFoundError:
        return
    raise BadInputError(
        f"another project's package {OTHER} {found} is installed in this environment and has overwritten files of "
        f"{NAME}: run pip uninstall {OTHER} {NAME}, then install {NAME} again from its checkout or wheel"
    )


def has_metadata(name: str, directories: Iterable[str]) -> bool:
    """Return whether one of the directories may hold metadata of a distribution, as pip leaves it beside packages."""
    for directory in directories:
        try:
            entries = [entry.name.lower() for entry in Path(directory).iterdir()]
        # The path is an archive, or a directory that does not exist.
        except OSError:
            continue
        if any(entry.startswith((f"{name}-", f"{name}.egg-info")) for entry in entries):
            return True
    return False
