"""Checks from time to time whether the API groups are served that autoscalers need for their metrics."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from evalrun_cluster.errors import ClusterError

logger = logging.getLogger(__name__)

ASK_SECONDS = 30.0


class Groups(Protocol):
    """Interface for asking which API groups are served. `evalrun_cluster.client.Cluster` implements it."""

    async def serves_group(self, group: str) -> bool:
        """Return whether an API group is served. Raises ClusterError."""
        ...


class ApiDiscovery:
    """Remembers which API groups are missing. If discovery fails, the last known reply stays valid.

    Args:
        groups: the API server.
        names: the groups to check.
        missing: gets the groups that are not served.
    """

    def __init__(self, groups: Groups, names: Iterable[str], missing: set[str]) -> None:
        self._groups = groups
        self._names = tuple(names)
        self._missing = missing

    async def look(self) -> None:
        """Check all groups once."""
        for name in self._names:
            try:
                served = await self._groups.serves_group(name)
            except ClusterError as error:
                logger.info("whether %s is served is not known: %s", name, error)
                continue
            if served is (name in self._missing):
                # The change is logged once here, instead of as an event of each run.
                level = logging.INFO if served else logging.WARNING
                logger.log(level, "API group %s is %s", name, "served" if served else "not served")
            if served:
                self._missing.discard(name)
            else:
                self._missing.add(name)

    async def run(self) -> None:
        """Check again and again until cancelled."""
        while True:
            await asyncio.sleep(ASK_SECONDS)
            await self.look()
