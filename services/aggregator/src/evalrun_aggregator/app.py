"""Wires the aggregator: takes settings, returns a service, decides nothing."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import REGISTRY, CollectorRegistry

from evalrun_aggregator.clocks import Clocks
from evalrun_aggregator.control.access import ControlServer
from evalrun_aggregator.control.run_control import STOPPED, RunControl
from evalrun_aggregator.control.service import ControlService
from evalrun_aggregator.epochs import Epochs
from evalrun_aggregator.finish.finisher import Finisher, OutputWriter
from evalrun_aggregator.finish.output_retry import OutputRetry
from evalrun_aggregator.finish.output_signature import parse_attest_key
from evalrun_aggregator.finish.writer import check_destination, write_run_outputs
from evalrun_aggregator.gate_stop import GateStop
from evalrun_aggregator.gate_watch import GateWatch, kept_problems, load_watched_gates
from evalrun_aggregator.intake import Intake
from evalrun_aggregator.judging.dispatcher import Dispatcher, DispatchSettings
from evalrun_aggregator.judging.item_rules import ItemRules
from evalrun_aggregator.judging.item_traces import ItemTraces
from evalrun_aggregator.judging.judge_descriptions import JudgeDescriptions
from evalrun_aggregator.judging.retry_policy import RetryPolicy
from evalrun_aggregator.ledger.items import RunItems
from evalrun_aggregator.ledger.leases import Leases
from evalrun_aggregator.ledger.ledger import Ledger
from evalrun_aggregator.replicas import ReplicaRegistry
from evalrun_aggregator.run_driver import RunDriver
from evalrun_aggregator.run_state import RunState
from evalrun_aggregator.service import LedgerService
from evalrun_aggregator.settings import AggregatorSettings
from evalrun_aggregator.start.datasets import check_supported, load_datasets
from evalrun_aggregator.start.facts import make_identity, name_rejudging
from evalrun_aggregator.start.ledger_start import OpenedRun, open_run
from evalrun_aggregator.start.problems import RunProblems, count_raced_problems, draws_by_chance, make_turn_policies
from evalrun_aggregator.start.responses import GivenResponses, read_responses
from evalrun_aggregator.start.start_warnings import count_languages, start_warnings
from evalrun_aggregator.status_report import StatusReport
from evalrun_aggregator.storage_watch import StorageWatch
from evalrun_aggregator.telemetry import ReplicaGauge, Telemetry
from evalrun_aggregator.token_budget import TokenBudget, TokenBudgets
from evalrun_aggregator.turns.policy import TurnPolicy
from evalrun_aggregator.weights_version import WeightsVersion
from evalrun_aggregator.work_items import WorkItems
from evalrun_api.run_config import Protocol, RunConfig, read_run_config
from evalrun_client.judge_client import GrpcJudge, JudgeAddress
from evalrun_data.governance.run_audit import COPY_ELSEWHERE, SET_POLICY
from evalrun_proto.ledger.v1 import ledger_pb2_grpc
from evalrun_results.exports.content import export_id
from evalrun_runtime.connections.bearer_tokens import BearerTokens
from evalrun_runtime.connections.grpc_server import GrpcServer
from evalrun_runtime.connections.tls_files import TlsFiles, TlsSource

if TYPE_CHECKING:
    from evalrun_aggregator.sample_feed.feed_server import FeedServer

logger = logging.getLogger(__name__)

SERVICE_NAME = "evalrun.ledger.v1.LedgerService"
OPERATOR_METHODS = tuple(f"/{SERVICE_NAME}/{name}" for name in ("GetStatus", "EndRun"))
"""Methods that only the operator may call: model code that runs beside a worker must not end the run."""
PAGES_A_MIB = 256
SYSTEM_CLOCKS = Clocks(time.time, time.monotonic)


class RunParts(NamedTuple):
    """The parts of a run that are served, started and stopped."""

    service: LedgerService
    control: ControlService
    driver: RunDriver
    intake: Intake


class Aggregator:
    """The aggregator's process: opens the ledger, serves, judges, writes the outputs, and stays to report its status.

    Args:
        settings: the process's settings.
        open_judge: opens a judge from address, tokens and identity.
        write: writes the outputs.
        registry: the registry of the metrics.
        clocks: the sources of time.
    """

    def __init__(
        self,
        settings: AggregatorSettings,
        *,
        open_judge: Callable[[str, BearerTokens | None, TlsSource | None], JudgeAddress] = GrpcJudge,
        write: OutputWriter = write_run_outputs,
        registry: CollectorRegistry = REGISTRY,
        clocks: Clocks = SYSTEM_CLOCKS,
    ) -> None:
        self._settings = settings
        self._open_judge = open_judge
        self._write = write
        self._registry = registry
        self._clocks = clocks
        operator = BearerTokens.load(settings.operator_token, settings.operator_token_file)
        own_tokens = {} if operator is None else dict.fromkeys(OPERATOR_METHODS, operator)
        self._server = GrpcServer(settings, [SERVICE_NAME], own_tokens=own_tokens)
        self._ledger: Ledger | None = None
        self._judges: list[JudgeAddress] = []
        self._run: RunParts | None = None
        self._feed: FeedServer | None = None
        self._control: ControlServer | None = None

    async def start(self) -> str:
        """Open the run and serve.

        Raises:
            BadInputError: run configuration, data or ledger cannot be used.
            LedgerError: the disk failed or is full.
            OSError: the port is taken.
        """
        settings = self._settings
        order = read_run_config(settings.work_order)
        first_start = not settings.ledger.exists()
        await asyncio.to_thread(check_destination, order.output_dir, first_start=first_start)
        problems, responses = await asyncio.to_thread(load_run_problems, order)
        max_pages = None if settings.ledger_max_mib is None else settings.ledger_max_mib * PAGES_A_MIB
        self._ledger = ledger = Ledger(settings.ledger, max_pages=max_pages)
        try:
            budget = make_budget_book(order, problems.items)
            opened = await open_run(
                ledger,
                problems.items,
                make_identity(order, problems.datasets, None if responses is None else responses.sha256),
                rejudge=name_rejudging(order),
                retry_not_judged=settings.retry_not_judged,
                lift_pause=settings.lift_pause,
                asks_for_outputs=order.race_problems is not None,
                responses=None if responses is None else responses.completions,
                budget=budget,
                turns=turn_policies(order) is not None,
                asked=count_asked_samples(order, problems, responses),
                kept=lambda facts: (
                    kept_problems(facts, order.spec, problems.items) or count_raced_problems(order, problems.items)
                ),
                now=self._clocks.now(),
            )
            watch = await make_gate_watch(order, problems, ledger)
            tokens = BearerTokens.load(settings.judge_token, settings.judge_token_file)
            tls = TlsFiles.load(settings.judge_tls_folder)
            self._judges = [self._open_judge(address, tokens, tls) for address in settings.judge]
            self._run = run = self._wire(order, problems, ledger, opened, budget, watch)
            ledger_pb2_grpc.add_LedgerServiceServicer_to_server(run.service, self._server.server)
            address = await self._server.start()
            self._control = ControlServer(settings, ledger.path)
            await self._control.start(run.control)
        except BaseException:
            await ledger.close()
            raise
        run.driver.start()
        if settings.samples_port is not None:
            # The import is made here, because it loads aiohttp, and a run on one machine has no such port.
            from evalrun_aggregator.sample_feed.feed_server import FeedServer

            self._feed = FeedServer(settings.ledger, settings.samples_port, problems.iter_prompts)
            try:
                logger.info("samples are shown on port %d of 127.0.0.1", await self._feed.start())
            # Another container of the pod has the port. The run works without it.
            except OSError as error:
                logger.warning("no samples are shown: port %d: %s", settings.samples_port, error.strerror)
        return address

    async def stop(self, grace: float) -> None:
        """Stop accepting requests, store what has arrived, and close the ledger."""
        if self._control is not None:
            await self._control.stop()
        await self._server.stop(grace)
        if self._feed is not None:
            await self._feed.stop()
        if self._run is not None:
            await self._run.driver.stop()
            await self._run.intake.drain()
        for judge in self._judges:
            await judge.close()
        if self._ledger is not None:
            await self._ledger.close()

    def _wire(
        self,
        order: RunConfig,
        problems: RunProblems,
        ledger: Ledger,
        opened: OpenedRun,
        budget: TokenBudgets | None,
        watch: GateWatch | None,
    ) -> RunParts:
        settings, clocks, item_states = self._settings, self._clocks, opened.item_states
        replicas = ReplicaRegistry(ledger.reader.gpu_seconds())
        telemetry = self._telemetry(order, opened, replicas)
        state = RunState(order.run, opened, telemetry, clocks)
        traces = ItemTraces(export_id(order), problems.items)
        dispatcher = Dispatcher(
            item_states,
            ledger,
            self._judges,
            item_rules(order, problems),
            dispatch_settings(settings),
            clocks=clocks,
            chance=random.Random(),  # noqa: S311 - jitter of delays
            traces=traces,
            on_stored=state.note_verdicts,
        )
        submits = any(dataset.judge_mode == "Submit" for dataset in order.spec.datasets)
        judges = JudgeDescriptions(self._judges, ledger, ledger.reader.facts().get("judges", ""), submits=submits)
        finisher = Finisher(
            order,
            problems,
            ledger,
            state,
            replicas,
            judges,
            self._write,
            export_seconds=settings.export_seconds,
            retry=OutputRetry(settings.output_retry_seconds, clocks.monotonic),
            watch=watch,
            key=None if settings.attest_key is None else parse_attest_key(settings.attest_key),
        )
        leases = Leases(item_states, settings.lease_seconds)
        gates = None if watch is None else GateStop(watch, state, ledger, leases)
        intake = Intake(state, ledger, leases, replicas, budget, dispatcher.wake)
        storage = None
        if settings.storage_seconds is not None:
            storage = StorageWatch(
                lambda: intake.storage_trouble or dispatcher.storage_trouble, settings.storage_seconds, clocks.monotonic
            )
        driver = RunDriver(state, ledger, dispatcher, judges, finisher, gates, storage)
        warnings = start_warnings(problems.datasets, order.spec)
        # A server that has the tests judges every language.
        languages = {} if submits else count_languages(problems.datasets)
        status = StatusReport(state, intake, dispatcher, judges, replicas, finisher, warnings, languages, watch)
        work_items = WorkItems(problems, ledger, budget, traces)
        facts = ledger.reader.facts()
        epochs, weights = Epochs(ledger, facts), WeightsVersion(ledger, facts)
        stop = partial(driver.end_early, STOPPED, by_user=True)
        control = ControlService(RunControl(state, ledger, dispatcher, stop), status)
        service = LedgerService(state, intake, status, driver, work_items, epochs, weights)
        return RunParts(service, control, driver, intake)

    def _telemetry(self, order: RunConfig, opened: OpenedRun, replicas: ReplicaRegistry) -> Telemetry:
        cost, clocks = order.spec.cost, self._clocks
        gpu_hour = None if cost is None else cost.gpu_hour_value
        price = None if cost is None or gpu_hour is None else (float(gpu_hour), cost.currency)
        telemetry = Telemetry(
            order.run, order.namespace, self._registry, clocks.now(), price, order.spec.sampled_datasets
        )
        for dataset, tallies in opened.tallies.items():
            for tally in tallies:
                telemetry.restore(dataset, tally)

        def gauges() -> list[ReplicaGauge]:
            known = replicas.list_replicas(clocks.monotonic())
            return [ReplicaGauge(up=replica.up, in_flight=replica.in_flight) for replica in known]

        telemetry.observe(opened.item_states, gauges, lambda: replicas.gpu_seconds)
        return telemetry


async def make_gate_watch(order: RunConfig, problems: RunProblems, ledger: Ledger) -> GateWatch | None:
    """Return the watch over the run's sequential gates, or None if there are none."""
    if not any(gate.sequential for gate in order.spec.gates):
        return None
    gates = await asyncio.to_thread(load_watched_gates, order)
    return GateWatch(order.spec, problems, gates, ledger.reader.facts())


def load_run_problems(order: RunConfig) -> tuple[RunProblems, GivenResponses | None]:
    """Load the datasets and responses of a run configuration. Blocking. Raises BadInputError."""
    check_supported(order.spec)
    remedy = SET_POLICY if order.responses is None else COPY_ELSEWHERE
    datasets = load_datasets(order.spec, order.base_dir, order.sources, remedy)
    if order.responses is None:
        protocol = order.spec.protocol
        budget = make_token_budget(protocol)
        samples = (
            protocol.answers_per_problem
            if budget is None
            else budget.max_samples(sum(len(d.problems) for d in datasets))
        )
        repeats = protocol.noise_floor_repeats
        by_chance = draws_by_chance(order)
        turns = 1 if protocol.turns is None else protocol.turns.limit
        numbered = RunProblems(
            order.run, datasets, protocol, samples=samples, repeats=repeats, turns=turns, by_chance=by_chance
        )
        return numbered, None
    return read_responses(order, datasets)


def make_token_budget(protocol: Protocol) -> TokenBudget | None:
    """Return the token budget of each problem; None if the protocol fixes the number of samples."""
    if protocol.budget is None:
        return None
    return TokenBudget(protocol.budget.output_tokens_per_problem, protocol.max_new_tokens)


def make_budget_book(order: RunConfig, items: RunItems) -> TokenBudgets | None:
    """Return the token budgets of a run that draws samples until its budget is spent; None if nothing is generated."""
    budget = make_token_budget(order.spec.protocol)
    if budget is None or order.responses is not None or order.rejudge is not None:
        return None
    return TokenBudgets(budget, items)


def count_asked_samples(order: RunConfig, problems: RunProblems, responses: GivenResponses | None) -> Sequence[int]:
    """Return how many samples each problem of each dataset should at least have, if nothing is generated."""
    if responses is not None:
        return responses.asked
    # A token budget decides how many samples follow the first.
    samples = 1 if order.spec.protocol.budget is not None else problems.items.samples
    return [samples] * len(problems.datasets)


def turn_policies(order: RunConfig) -> dict[str, TurnPolicy] | None:
    """Return the rules of further turns by dataset; None if no turn opens because nothing is generated."""
    if order.responses is not None or order.rejudge is not None:
        return None
    return make_turn_policies(order.spec)


def item_rules(order: RunConfig, problems: RunProblems) -> ItemRules:
    """Return the rules that turn an item into a judge request and the reply into a verdict."""
    policies = turn_policies(order)
    if policies is None:
        return ItemRules(problems.request, problems.verdict)
    return ItemRules(problems.request, problems.verdict, partial(problems.next_feedback, policies))


def dispatch_settings(settings: AggregatorSettings) -> DispatchSettings:
    """Return the dispatcher's bounds."""
    return DispatchSettings(
        in_flight=settings.judge_in_flight,
        streams=min(settings.judge_streams, settings.judge_in_flight),
        stream_age=settings.judge_stream_seconds,
        answer_timeout=settings.judge_answer_seconds,
        retries=RetryPolicy(attempts=settings.judge_attempts, patience=settings.judge_patience_seconds),
    )
