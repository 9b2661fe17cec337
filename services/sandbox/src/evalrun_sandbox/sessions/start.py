"""Checks the requirements of live sessions on this machine before the first session."""

import resource

from prometheus_client import CollectorRegistry

from evalrun_executor.errors import Unusable
from evalrun_executor.executor import Executor
from evalrun_sandbox.sessions.interpreter import Interpreters
from evalrun_sandbox.sessions.sessions import SessionLimits, Sessions

_OTHER_DESCRIPTORS = 512
"""Descriptors beside one per session, here and in the zygote: connections, programs."""


def start_sessions(executor: Executor, limits: SessionLimits, registry: CollectorRegistry) -> Sessions:
    """Return the sessions of a started executor. Raises Unusable if this machine cannot contain or hold them."""
    if executor.report.level != "full":
        raise Unusable(
            f"live sessions need containment level full, and this machine reaches {executor.report.level}: "
            f"{'; '.join(executor.report.missing)}; start without --max-sessions"
        )
    _allow_descriptors(limits.max_sessions)
    return Sessions(executor, Interpreters(executor.zygote_plan), limits, registry)


def _allow_descriptors(sessions: int) -> None:
    wanted = sessions + _OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise Unusable(
            f"{sessions} live sessions need {wanted} open files, and the limit is {hard}: raise it (ulimit -Hn), "
            "or lower --max-sessions"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
