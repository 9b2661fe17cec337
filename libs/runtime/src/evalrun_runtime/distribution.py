"""The installed distribution: its version, how an extra of it is installed, and whether a stranger's is beside it.

The distribution is called `kube-evalrun`: on the Python index `evalrun` is another project's, with a package and a
command of the same name.
"""

from importlib.metadata import PackageNotFoundError, version

from evalrun_runtime.exits import BadInputError

NAME = "kube-evalrun"
OTHER = "evalrun"
"""The other project, on the Python index."""


def own_version() -> str:
    """Return the version of the installed distribution."""
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
    try:
        found = version(OTHER)
    except PackageNotFoundError:
        return
    raise BadInputError(
        f"another project's package {OTHER} {found} is installed in this environment and has overwritten files of "
        f"{NAME}: run pip uninstall {OTHER} {NAME}, then install {NAME} again from its checkout or wheel"
    )
