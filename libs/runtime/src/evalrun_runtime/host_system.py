"""Which systems can contain programs, and what to do on the others. The standard library alone."""

from typing import Final

_SHOWN: Final = {"Darwin": "macOS"}
"""Systems that people know by another name than the kernel's."""


def explain_unfit_system(system: str, release: str) -> str:
    """Return why programs cannot be judged on a system, and what to do instead; empty if they can be judged. Pure.

    Args:
        system: the kernel's name, as `uname -s` prints it.
        release: its release, as `uname -r` prints it.
    """
    if system != "Linux":
        shown = _SHOWN.get(system, system)
        return (
            f"programs are judged on Linux 5.13 or newer, and this is {shown}: use a Linux machine, a virtual machine "
            "or a container, or have a cluster judge (evalrun run FILE). Commands that judge nothing, such as compare, "
            "gate and show, need no Linux"
        )
    # WSL 1 translates Linux's calls and has no Landlock ("4.4.0-19041-Microsoft"). WSL 2 has a kernel of its own
    # ("5.15.167.4-microsoft-standard-WSL2").
    if release.endswith("-Microsoft"):
        return "programs are judged on a real Linux kernel, which WSL 1 lacks: run wsl --set-version DISTRIBUTION 2"
    return ""
