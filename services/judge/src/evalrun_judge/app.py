"""Wires the gateway: sandboxes, pool, admission, judge, RPCs. Decides nothing."""

# grpcio's stubs are generic, but its classes are not.
from __future__ import annotations

import asyncio
import os
import random
import secrets
import time

from prometheus_client import REGISTRY

from evalrun_judge.cache.verdict_cache import MemoryStore, VerdictCache, VerdictStore
from evalrun_judge.cache.verdict_key import JudgeIdentity
from evalrun_judge.families.family import Runners
from evalrun_judge.families.registry import build_families
from evalrun_judge.function_tests.assertions import AssertionRunner, ContainedAssertions, replay_executor
from evalrun_judge.judge import Judge
from evalrun_judge.metrics import JudgeMetrics
from evalrun_judge.pool.discovery import DnsDiscovery, SandboxDiscovery, StdinDiscovery
from evalrun_judge.pool.hedge_policy import HedgePolicy
from evalrun_judge.pool.policy import HealthPolicy, PoolPolicy
from evalrun_judge.pool.pool import SandboxPool
from evalrun_judge.pool.retries import RetryPolicy
from evalrun_judge.pool.sandbox_fleet import SandboxSources
from evalrun_judge.rpc.service import JudgeService
from evalrun_judge.sandboxes import Sandbox
from evalrun_judge.sandboxes.evalrun_http import EvalrunSandbox
from evalrun_judge.settings import JudgeSettings
from evalrun_judge.suites import Suites
from evalrun_proto.judge.v1 import judge_pb2, judge_pb2_grpc
from evalrun_runtime.admission import Admission
from evalrun_runtime.connections.bearer_tokens import BearerTokens
from evalrun_runtime.connections.grpc_server import GrpcServer
from evalrun_runtime.connections.tls_files import TlsFiles
from evalrun_runtime.distribution import describe_install, read_own_version
from evalrun_runtime.exits import BadInputError
from evalrun_runtime.host_system import explain_unfit_system
from evalrun_runtime.late_arguments import ON_STDIN
from evalrun_runtime.run_shares import make_declared_shares
from evalrun_runtime.tracing import past_span

SERVICE_NAME = judge_pb2.DESCRIPTOR.services_by_name["JudgeService"].full_name


class JudgeGateway:
    """The service that `evalrun_runtime.process.run_service` runs."""

    def __init__(
        self,
        settings: JudgeSettings,
        pool: SandboxPool,
        assertions: AssertionRunner,
        metrics: JudgeMetrics,
        cache: VerdictCache | None = None,
    ) -> None:
        """Connect the parts.

        Args:
            settings: the gateway's settings.
            pool: runs the programs; not started.
            assertions: replays function tests' assertions; not started.
            metrics: the gateway's metrics.
            cache: earlier verdicts; None: verdicts are not cached.
        """
        self._pool = pool
        self._cache = cache or VerdictCache(())
        self._assertions = assertions

        def begun(seconds: float) -> None:
            past_span("queue", seconds)
            metrics.observe_queue(seconds)

        self._admission = Admission(
            lambda: pool.slots + settings.queue_limit,
            time.monotonic,
            begun,
            max_bytes=settings.queue_mib * 1024 * 1024,
        )
        metrics.watch_queue(
            lambda: self._admission.waiting,
            lambda: self._admission.oldest_seconds,
            lambda: self._admission.inside - self._admission.waiting,
        )
        metrics.watch_sandboxes(lambda: pool.slots, lambda: pool.in_flight)
        self._service = JudgeService(
            Judge(
                pool,
                build_families(Runners(pool, assertions)),
                self._admission,
                metrics,
                time.monotonic,
                self._cache,
                JudgeIdentity(read_own_version(), settings.sandbox_image),
            ),
            pool,
            suites=Suites(settings.suite_mib * 1024 * 1024),
            version=read_own_version(),
            stream_concurrency=settings.stream_concurrency,
            stream_seconds=settings.stream_seconds,
        )
        self._server = GrpcServer(settings, [SERVICE_NAME])
        judge_pb2_grpc.add_JudgeServiceServicer_to_server(self._service, self._server.server)

    async def start(self) -> str:
        """Start the assertions' child, begin to watch the sandboxes, and listen."""
        await self._assertions.start()
        self._pool.start()
        return await self._server.start()

    async def stop(self, grace: float) -> None:
        """Accept no new request, deliver the verdicts in flight within `grace` seconds, and close everything."""
        self._admission.drain()
        self._service.drain()
        await self._server.stop(grace)
        await self._pool.close()
        await self._assertions.close()
        await self._cache.close()


def build_gateway(settings: JudgeSettings) -> JudgeGateway:
    """Create the gateway that the settings describe. Called inside the running loop.

    Raises:
        BadInputError: tests' own code cannot be contained on this system, or a setting cannot be used.
    """
    host = os.uname()
    if reason := explain_unfit_system(host.sysname, host.release):
        raise BadInputError(reason)
    tokens = BearerTokens.load(settings.sandbox_token, settings.sandbox_token_file)
    metrics = JudgeMetrics(REGISTRY)

    tls = TlsFiles.load(settings.sandbox_tls_folder)

    def connect(url: str, server_name: str | None = None) -> Sandbox:
        if settings.backend == "SandboxFusion":
            # The import is made here, because it loads aiohttp, a quarter of the CPU time of the gateway's imports.
            from evalrun_judge.sandboxes.fusion import FusionSandbox

            return FusionSandbox(url, tokens, nonces=secrets.token_bytes, tls=tls, server_name=server_name)
        return EvalrunSandbox(url, tokens, tls=tls, server_name=server_name)

    scheme = "http" if tls is None else "https"
    sources = SandboxSources(
        [connect(url) for url in settings.sandbox if url.startswith("http")],
        [make_discovery(target, scheme) for target in settings.sandbox if not target.startswith("http")],
        connect,
    )
    pool = build_pool(settings, sources, metrics)
    slots = settings.assertion_slots or len(os.sched_getaffinity(0))
    executor = replay_executor(slots, settings.min_level, settings.package_dirs)
    assertions = ContainedAssertions(executor, slots, lambda: pool.crowded)
    return JudgeGateway(settings, pool, assertions, metrics, build_cache(settings, metrics))


def build_cache(settings: JudgeSettings, metrics: JudgeMetrics) -> VerdictCache:
    """Create the verdict cache: this process's memory, then Redis if one is configured. Raises BadInputError."""
    if settings.cache_mib == 0:
        return VerdictCache(())
    stores: list[VerdictStore] = [MemoryStore(settings.cache_mib * 1024 * 1024)]
    if settings.cache_redis is not None:
        keep_seconds = int(settings.cache_redis_days * 86400)
        try:
            # Only this setting needs the package, which the base for one machine does not install.
            from evalrun_judge.cache.redis_store import RedisStore

            url = settings.cache_redis.get_secret_value()
            stores.append(RedisStore(url, keep_seconds=keep_seconds, clock=time.monotonic))
        except ImportError as error:
            raise BadInputError(f"--cache-redis needs the package redis: {describe_install('cache')}") from error
        except ValueError as error:
            raise BadInputError(f"--cache-redis: {error}") from error
    return VerdictCache(stores, metrics.count_cache)


def make_discovery(target: str, scheme: str = "http") -> SandboxDiscovery:
    """Return the discovery for `dns:///host:port`, `k8s:///namespace/service:port` or `stdin:`. Raises
    BadInputError."""
    if target == ON_STDIN:
        return StdinDiscovery(scheme=scheme)
    try:
        if target.startswith("k8s:"):
            # The import is made here, because it loads aiohttp, which takes long.
            from evalrun_judge.pool.endpoint_slices import ApiServer, EndpointSliceDiscovery

            return EndpointSliceDiscovery(target, ApiServer.from_pod(os.environ), scheme=scheme)
        return DnsDiscovery(target, scheme=scheme)
    except ValueError as error:
        raise BadInputError(f"--sandbox: {error}") from error


def build_pool(settings: JudgeSettings, sources: SandboxSources, metrics: JudgeMetrics) -> SandboxPool:
    """Create the pool over these sandboxes, in real time."""
    policy = PoolPolicy(
        required_level=settings.min_level,
        retries=RetryPolicy(
            attempts=settings.retry_attempts,
            budget_seconds=settings.retry_budget_seconds,
            ratio=settings.retry_ratio,
        ),
        health=HealthPolicy(seconds=settings.health_seconds),
        hedging=HedgePolicy() if settings.hedging else None,
    )
    return SandboxPool(
        sources,
        policy,
        clock=time.monotonic,
        sleep=asyncio.sleep,
        randomness=random.Random(),  # noqa: S311 - spreads load, guards nothing
        metrics=metrics,
        shares=make_declared_shares(settings.share, settings.priority, time.monotonic),
    )
