"""Code that each child runs between its fork and its program, written to touch as few memory pages as possible.

Each page that a child touches is copied for it, at 1 to 3 us, and Python touches one for nearly every function,
constant and name that it meets: a straight line of calls, all bound before the fork, costs half of what the same calls
cost through methods, module globals and ctypes' conversions.
"""

from __future__ import annotations

import os
from _collections_abc import Callable

from evalrun_executor.contained.filters import MODE_FILTER, Filter
from evalrun_executor.contained.kernel import PR_SET_DUMPABLE, PR_SET_PDEATHSIG, PR_SET_SECCOMP, close_from, plain_prctl
from evalrun_executor.contained.supervision import expect_none

Enter = Callable[[int, int, int, int], None]
HIGHEST_FD = 256
"""Above all that a runner holds: it may open `limits.OPEN_FILES`."""


def entrance(*, watched: bool) -> Enter:
    """Return what a child of this process does first, with the descriptors of its stdin, stdout, stderr, and one more.

    It dies with its parent, and holds these descriptors and nothing else; the last, where there is one (-1), as number
    3, closed when it executes another program.

    Args:
        watched: it may be looked into by its own user, as its parent does (`folder.hidden_breach`); only where Landlock
            keeps programs of the same user from each other.
    """
    close_from(HIGHEST_FD)  # nothing that this process needs lies there, and no child may find it
    parent = os.getpid()
    prctl, getppid, dup2, closerange, leave = plain_prctl, os.getppid, os.dup2, os.closerange, os._exit
    dies, kill, highest, inheritable = PR_SET_PDEATHSIG, 9, HIGHEST_FD, False
    dumpable = PR_SET_DUMPABLE

    def enter(stdin: int, stdout: int, stderr: int, more: int) -> None:
        if prctl(dies, kill, 0, 0, 0) != 0 or getppid() != parent:  # it ended before the request was made
            leave(1)
        if watched:
            prctl(dumpable, 1, 0, 0, 0)
        dup2(stdin, 0)
        dup2(stdout, 1)
        dup2(stderr, 2)
        if more < 0:
            closerange(3, highest)
        else:
            dup2(more, 3, inheritable)
            closerange(4, highest)

    return enter


def confinement(confine: Filter | None) -> Callable[[], None]:
    """Put this process under the part of the filter that stands ahead, and return what puts a child under the rest.

    The kernel translates a filter and tries it for every call there is, each time: at least 96 us for the whole and 31
    for the rest, of a test's 1,400.

    Without a filter it leads a group, so that what it starts can be killed with it, and blocks no signals; with one it
    can have no children whose SIGCHLD it could miss.
    """
    if confine is None:
        return _lead_a_group
    if confine.ahead is not None:
        confine.ahead.install()
    prctl, getpid, leave = plain_prctl, os.getpid, os._exit
    words, places, head = confine.words, confine.self_places, confine.head
    seccomp, mode = PR_SET_SECCOMP, MODE_FILTER

    def install() -> None:
        own = getpid()
        for place in places:
            words[place] = own
        if prctl(seccomp, mode, head, 0, 0) != 0:
            leave(1)

    return install


def _lead_a_group() -> None:
    os.setpgid(0, 0)
    expect_none()
