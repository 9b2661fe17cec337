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


def prepare_bootstrap(*, watched: bool) -> Enter:
    """Return the first step of each child of this process.

    The step takes the descriptors of stdin, stdout and stderr, and a further descriptor or -1, which becomes number 3
    and closes when the child executes another program. The child then dies with its parent and holds no descriptor but
    these.

    Args:
        watched: let the child's own user look into it, as its parent does (`directory.find_hidden_breach`); only where
            Landlock keeps programs of the same user from each other.
    """
    # This process needs no descriptor from this number on. Its children close only the descriptors below it.
    close_from(HIGHEST_FD)
    parent = os.getpid()
    prctl, getppid, dup2, closerange, leave = plain_prctl, os.getppid, os.dup2, os.closerange, os._exit
    dies, kill, highest, inheritable = PR_SET_PDEATHSIG, 9, HIGHEST_FD, False
    dumpable = PR_SET_DUMPABLE

    def enter(stdin: int, stdout: int, stderr: int, more: int) -> None:
        # The kernel reports only an end of the parent after this request. `getppid` shows a parent that ended before.
        if prctl(dies, kill, 0, 0, 0) != 0 or getppid() != parent:
            leave(1)
        if watched:
            # The zygote made itself undumpable, which a fork inherits and which hides /proc/PID/fd.
            prctl(dumpable, 1, 0, 0, 0)
        dup2(stdin, 0)
        dup2(stdout, 1)
        dup2(stderr, 2)
        # All other descriptors are closed, above all the runner's socket: a program could write results into it.
        if more < 0:
            closerange(3, highest)
        else:
            dup2(more, 3, inheritable)
            closerange(4, highest)

    return enter


def prepare_confinement(confine: Filter | None) -> Callable[[], None]:
    """Put this process under the first part of the filter. Return the step that puts a child under the rest.

    At each installation the kernel translates a filter and tries it for every call there is. That takes at least 96 us
    for the whole filter and 31 us for the rest; a test takes 1,400 us.

    A child without a filter may start processes: it leads a group, so that they can be killed with it, and it blocks no
    signals, because a blocked SIGCHLD would keep it from noticing their ends.
    """
    if confine is None:
        return _lead_a_group
    if confine.ahead is not None:
        confine.ahead.install()
    prctl, getpid, leave = plain_prctl, os.getpid, os._exit
    words, places, head = confine.words, confine.self_places, confine.head
    seccomp, mode = PR_SET_SECCOMP, MODE_FILTER

    def install() -> None:
        # The filter lets a process signal itself only, so each child writes its own process id into the program first.
        own = getpid()
        for place in places:
            words[place] = own
        if prctl(seccomp, mode, head, 0, 0) != 0:
            leave(1)

    return install


def _lead_a_group() -> None:
    os.setpgid(0, 0)
    expect_none()
