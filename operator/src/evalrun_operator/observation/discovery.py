"""Asks from time to time whether the API groups are served without which autoscalers measure nothing."""

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
    """Remembers which API groups are missing. If discovery fails, the last known answer stays valid.

    Args:
        groups: the API server.
        names: the groups to ask for.
        missing: gets those that are not served.
    """

    def __init__(self, groups: Groups, names: Iterable[str], missing: set[str]) -> None:
        self._groups = groups
        self._names = tuple(names)
        self._missing = missing

    async def look(self) -> None:
        """Ask once."""
        for name in self._names:
            try:
                served = await self._groups.serves_group(name)
            except ClusterError as error:
                logger.info("whether %s is served is not known: %s", name, error)
                continue
            if served is (name in self._missing):
                level = logging.INFO if served else logging.WARNING  # once here, not as an event of each run
                logger.log(level, "API group %s is %s", name, "served" if served else "not served")
            if served:
                self._missing.discard(name)
            else:
                self._missing.add(name)

    async def run(self) -> None:
        """Ask again and again until cancelled."""
        while True:
            await asyncio.sleep(ASK_SECONDS)
            await self.look()
