"""`python -m builders.operator.schedule_operator CLOCK`: the operator's work on schedules, under a driven clock.

The controller, its watches and its queue are the operator's own; left out are the runs' controller, whose part the test
plays by writing the runs' status, and kopf. CLOCK is a file with the time; a new time wakes every schedule.
"""

import asyncio
import sys
from datetime import datetime
from pathlib import Path

import httpx2
from builders.operator.world import operator_settings
from lightkube import KubeConfig
from prometheus_client import CollectorRegistry

from evalrun_api import names
from evalrun_cluster.client import Cluster, ExactClient
from evalrun_cluster.kinds import EVAL_RUN, EVAL_SCHEDULE
from evalrun_operator.observation.children import Children, Key, Manifests
from evalrun_operator.observation.watches import Watches
from evalrun_operator.reconcilers.work_queue import WorkQueue
from evalrun_operator.schedules.controller import ScheduleController
from evalrun_operator.schedules.metrics import ScheduleMetrics

TICK_SECONDS = 0.02


async def work(clock: Path) -> None:
    client = ExactClient(KubeConfig.from_env().get(), field_manager=names.FIELD_MANAGER, timeout=httpx2.Timeout(15))

    def now() -> datetime:
        return datetime.fromisoformat(clock.read_text())

    queue: WorkQueue[Key] = WorkQueue(lambda key: controller.work(key), 4, asyncio.get_running_loop().time)
    metrics = ScheduleMetrics(CollectorRegistry())
    controller = ScheduleController(
        operator_settings(), Cluster(client), Children(lambda _: None), metrics, queue.wake, now
    )
    schedules = Manifests(lambda manifest, gone: controller.saw(manifest, gone=gone), below=("template",))
    runs = Manifests(lambda manifest, gone: controller.saw_run(manifest, gone=gone))
    watches = Watches(client, [(EVAL_RUN, runs), (EVAL_SCHEDULE, schedules)], (), set())
    await watches.start(30)
    queue.start()
    controller.wake_all()
    known = now()
    while True:
        await asyncio.sleep(TICK_SECONDS)
        if now() != known:
            known = now()
            controller.wake_all()


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1])))
