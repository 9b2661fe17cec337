"""The worker of a live session: forks the interpreter once, hands it code, and stops it between two executions.

A stopped interpreter (SIGSTOP) holds memory but uses no CPU, whatever threads the code has left behind. Like a runner,
the worker runs under the session's Landlock ruleset and limits and executes no foreign code itself. Unlike a runner's
child the interpreter outlives its reply, so what it holds outside its memory is counted after each reply.

Service to worker: a byte with the descriptor of a memory file, a `frames.Job`. The first job is the session's: memory
limit and files to place. In later jobs mode `execute` brings code and limits, and mode `fetch` names files. Bytes
without a descriptor, PAUSE and RESUME, stop and continue the code while another session has its turn. Worker to
service: EXECUTED for each job (for the first job, once the interpreter waits for code), FILES for `fetch`, FAULT if the
worker cannot go on. The worker never ends with status 0, so that the zygote always tells the service when the session's
directory is free.
"""

# ruff: noqa: PTH116, SIM105
# Why: pathlib and contextlib would make the zygote larger, and each fork dearer.
from __future__ import annotations

import _socket
import gc
import os
import select
import stat
import struct
import sys
import time
from collections.abc import Callable

from evalrun_executor.contained import directory, frames, landlock, program
from evalrun_executor.contained.child_bootstrap import prepare_bootstrap, prepare_confinement
from evalrun_executor.contained.exchange import Exchange
from evalrun_executor.contained.kernel import count_threads, die_with
from evalrun_executor.contained.limits import MIB, SESSION_OPEN_FILES, STOP_FACTOR, limit_session, wall_limit
from evalrun_executor.contained.session import SIZE, Session
from evalrun_executor.contained.site import Site
from evalrun_executor.contained.supervision import (
    FAULTY,
    SERVICE_GONE,
    TICK_SECONDS,
    ServiceGoneError,
    read_cpu_seconds,
)

Next = Callable[[], "object"]
MAX_THREADS = 32
GRACE_SECONDS = 1.0
"""CPU seconds that code may use after it was interrupted; wall seconds twice as many."""
START_SECONDS = 10.0
"""CPU seconds until an interpreter waits for code; 3 ms are usual."""
_SIGINT, _SIGKILL, _SIGCONT, _SIGSTOP = 2, 9, 18, 19
_ENDING_MS = 1000
_CHUNK = 1 << 16
_PIPE_BYTES, _SOCKET_BYTES = 1 << 16, 1 << 19
"""Maximum bytes that the kernel holds for a pipe, and for a socket whose user has raised SO_SNDBUF."""
_KEPT: list[object] = []


class _LostError(Exception):
    """The interpreter cannot be used any more; the message is the reason that callers see."""


class _Execution:
    """Output and resource use of a piece of code so far."""

    def __init__(self, message: bytes, seconds: float, output_bytes: int, cpu_before: float) -> None:
        self.message = memoryview(message)
        """Rest of the message, which the interpreter has not read yet."""
        self.output_bytes = output_bytes
        self.cpu_before = cpu_before
        self.cpu_stop = cpu_before + STOP_FACTOR * seconds
        """CPU time of the interpreter at which the code is interrupted."""
        self.texts = (bytearray(), bytearray())
        """Text of stdout and of stderr, up to `output_bytes` each."""
        self.printed = [0, 0]
        self.reply = bytearray()
        self.stopped = frames.NOT_STOPPED
        self.started = time.monotonic()
        self.wall_stop = self.started + wall_limit(seconds)
        self.paused_at: float | None = None
        """When the code was stopped so that others can run; None: it runs."""

    def take(self, stream: int, data: bytes) -> None:
        """Keep output up to the bound, and count the rest."""
        self.printed[stream] += len(data)
        room = self.output_bytes - len(self.texts[stream])
        if room > 0:
            self.texts[stream].extend(data[:room])

    @property
    def is_replied(self) -> bool:
        """Whether the reply is complete. Raises _LostError if the bytes cannot be a reply."""
        head = frames.REPLY_HEAD
        if len(self.reply) < head.size:
            return False
        _, *sizes = head.unpack_from(self.reply)
        if any(size > frames.MAX_REPLY_TEXT for size in sizes) or len(self.reply) > head.size + sum(sizes):
            raise _LostError("the code broke the interpreter's channel")
        return bool(len(self.reply) == head.size + sum(sizes))


class SessionWorker:
    """Runs a live session."""

    def __init__(self, site: Site, slot: int, service: int) -> None:
        self._site = site
        self._service = _socket.socket(fileno=service)
        self._slot = slot
        self._work = site.work_directory(slot)
        self._pid = -1
        self._pidfd = self._channel = self._out = self._err = -1
        self._own: set[tuple[int, int]] = set()
        self._free = 0
        self._used = 0.0
        """CPU seconds of the interpreter at the last check."""

    def begin(self, zygote: int) -> Next | None:
        """Confine this process and everything that it forks. Return the next step; see `boot`."""
        try:
            die_with(zygote)
            os.setsid()
            if self._site.session_filter is None:
                raise OSError("live sessions need Landlock and seccomp, and this machine lacks one")
            landlock.restrict_self(self._ruleset())
            self._site.forget_rulesets()
            os.chdir(self._work)
            directory.empty(self._work)
            job, exchange, blob = self._take_job()
            limit_session(job.memory_mib, exchange.largest)
            exchange.place_files()
            os.close(blob)
            sys.path.insert(0, self._work)
            namespace = program.prepare_main("<session>")
            del namespace["__file__"]
            program.prepare_streams()
            program.forget_own_modules()
            self._session = Session(namespace)
            gc.freeze()
        except ServiceGoneError:
            os._exit(SERVICE_GONE)
        except Exception as error:  # noqa: BLE001 - its last words: the service takes them as an infra error
            self._report_fault(f"session: {type(error).__name__}: {error}")
            os._exit(FAULTY)
        return self.serve

    def _ruleset(self) -> int:
        ruleset = self._site.open_ruleset(self._slot, "harness")
        if ruleset is None:
            raise OSError("live sessions need Landlock, and this machine lacks it")
        return ruleset

    def serve(self) -> Next | None:
        """Fork the interpreter and do jobs until the service leaves. Return the next step, in the interpreter."""
        status = SERVICE_GONE
        try:
            enter, confine = prepare_bootstrap(watched=True), prepare_confinement(self._site.session_filter)
            stdin = os.open("/dev/null", os.O_RDONLY)
            out, out_end = os.pipe()
            err, err_end = os.pipe()
            ours, theirs = _socket.socketpair()
            channel = theirs.fileno()
            _KEPT.extend((self, enter, confine, ours, theirs))
            pid = os.fork()
            if pid == 0:
                enter(stdin, out_end, err_end, channel)
                confine()
                return self._session.run
            self._own = {_identify(fd) for fd in (out_end, err_end, channel)}
            for fd in (stdin, out_end, err_end, theirs.detach()):
                os.close(fd)
            self._pid, self._pidfd, self._out, self._err = pid, os.pidfd_open(pid), out, err
            self._channel = ours.fileno()
            for fd in (out, err, self._channel):
                os.set_blocking(fd, False)
            self._execute(b"", START_SECONDS, 0)
            while True:
                self._wait_for_job()
        except (ServiceGoneError, BrokenPipeError, ConnectionResetError):
            pass
        except Exception as error:  # noqa: BLE001 - its last words: the service takes them as an infra error
            self._report_fault(f"session: {type(error).__name__}: {error}")
            status = FAULTY
        self._end()
        os._exit(status)

    def _wait_for_job(self) -> None:
        """Wait for the service's next job, as long as the interpreter lives, and do it."""
        poller = select.poll()
        poller.register(self._service.fileno(), select.POLLIN)
        poller.register(self._pidfd, select.POLLIN)
        if any(fd == self._pidfd for fd, _ in poller.poll()):
            # The interpreter has ended. The service learns it from the end of our socket.
            raise ServiceGoneError
        job, exchange, blob = self._take_job()
        os.close(blob)
        if job.mode == "fetch":
            self._send_files(exchange)
            return
        self._execute(SIZE.pack(len(job.code)) + job.code, job.time_seconds, job.output_bytes)

    def _take_job(self) -> tuple[frames.Job, Exchange, int]:
        """Wait for a job. Raises ServiceGoneError."""
        ancillary: list[tuple[int, int, bytes]] = []
        # A byte without a descriptor is an order for an execution that has just ended.
        while not ancillary:
            message, ancillary, _, _ = self._service.recvmsg(1, _socket.CMSG_SPACE(4))
            if not message:
                raise ServiceGoneError
        ((_, _, data),) = ancillary
        (blob,) = struct.unpack("i", data)
        job, code_at, _ = frames.decode_job(lambda size, offset: frames.read_at(blob, size, offset))
        return job, Exchange(self._work, job, blob, code_at + job.code_size), blob

    def _send_files(self, exchange: Exchange) -> None:
        found = exchange.gather_files()
        if found is None:
            raise OSError("a job wants no file")
        together, payload = found
        frames.send_with_descriptors(self._service, frames.FRAME.pack(frames.FILES, len(payload)), [together])
        os.close(together)
        self._service.sendall(payload)

    def _execute(self, message: bytes, seconds: float, output_bytes: int) -> None:
        """Run the interpreter until it has replied to the message, stop it, and report."""
        execution = _Execution(message, seconds, output_bytes, read_cpu_seconds(self._pid))
        reason, held = "", 0
        try:
            os.kill(self._pid, _SIGCONT)
            self._free = directory.count_free_bytes(self._work)
            self._run_until_replied(execution)
            # SIGSTOP cannot be blocked, and a stopped process cannot send itself SIGCONT.
            os.kill(self._pid, _SIGSTOP)
            status = self._wait(os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                raise _LostError(_describe_end(status))
            self._drain(execution)
            held = self._count_held_bytes()
        except _LostError as lost:
            reason = str(lost)
        if reason:
            self._kill()
            self._drain(execution)
        else:
            self._used = read_cpu_seconds(self._pid)
        threads = 0 if reason else count_threads(self._pid)
        out, err = execution.texts
        reply = b"" if reason else execution.reply
        used, wall = max(0.0, self._used - execution.cpu_before), time.monotonic() - execution.started
        sizes = (len(out), len(err), len(reply))
        head = frames.EXECUTED_HEAD.pack(
            execution.stopped, reason == "", used, wall, *execution.printed, *sizes, held, threads, max(0, self._pid)
        )
        self._send(frames.EXECUTED, b"".join((head, out, err, reply, reason.encode(errors="replace")[:1000])))
        if reason:
            raise ServiceGoneError

    def _run_until_replied(self, execution: _Execution) -> None:
        """Exchange bytes with the interpreter and hold it to its limits. Raises _LostError, ServiceGoneError."""
        poller = select.poll()
        for fd in (self._service.fileno(), self._pidfd, self._out, self._err):
            poller.register(fd, select.POLLIN)
        poller.register(self._channel, select.POLLIN | (select.POLLOUT if execution.message else 0))
        next_look = time.monotonic() + TICK_SECONDS
        while not execution.is_replied:
            left = next_look - time.monotonic()
            if left <= 0:
                left = self._look(execution)
                next_look = time.monotonic() + left
            for fd, events in poller.poll(left * 1000):
                self._handle(execution, poller, fd, events)

    def _look(self, execution: _Execution) -> float:
        """Hold the code to its limits, and return the seconds until the next check. Raises _LostError."""
        if execution.paused_at is not None:
            return TICK_SECONDS
        used = self._check_use()
        if used >= execution.cpu_stop or time.monotonic() >= execution.wall_stop:
            self._interrupt(execution, frames.STOPPED_TIME)
        return min(TICK_SECONDS, max((execution.cpu_stop - used) / self._site.cpus, 0.001))

    def _take_order(self, execution: _Execution) -> None:
        """Pause or resume the code, as the service orders. Raises ServiceGoneError.

        The time of a pause counts for no limit.
        """
        order = self._service.recv(1)
        if not order:
            raise ServiceGoneError
        now = time.monotonic()
        if order == frames.PAUSE and execution.paused_at is None:
            os.kill(self._pid, _SIGSTOP)
            execution.paused_at = now
        elif order == frames.RESUME and execution.paused_at is not None:
            paused = now - execution.paused_at
            execution.paused_at = None
            execution.started += paused
            execution.wall_stop += paused
            os.kill(self._pid, _SIGCONT)

    def _handle(self, execution: _Execution, poller: select.poll, fd: int, events: int) -> None:
        """Read or write what a descriptor is ready for. Raises _LostError, ServiceGoneError."""
        if fd == self._service.fileno():
            self._take_order(execution)
            return
        if fd == self._pidfd:
            raise self._reap()
        if fd != self._channel:
            stream = int(fd == self._err)
            if _take_output(execution, stream, fd) == 0:
                # The code has closed the stream. The poller would report that again and again.
                poller.unregister(fd)
            elif execution.printed[stream] > execution.output_bytes and not execution.stopped:
                self._interrupt(execution, frames.STOPPED_OUTPUT)
            return
        if events & select.POLLOUT and execution.message:
            execution.message = execution.message[self._write(execution.message[:_CHUNK]) :]
            if not execution.message:
                poller.modify(self._channel, select.POLLIN)
        if events & ~select.POLLOUT:
            self._read_reply(execution)

    def _read_reply(self, execution: _Execution) -> None:
        try:
            data = os.read(self._channel, _CHUNK)
        except ConnectionResetError:
            data = b""
        if not data:
            raise self._explain_close()
        execution.reply += data
        if execution.is_replied and execution.message:
            raise _LostError("the code broke the interpreter's channel")

    def _write(self, piece: memoryview) -> int:
        try:
            return os.write(self._channel, piece)
        except BrokenPipeError:
            raise self._explain_close() from None

    def _explain_close(self) -> _LostError:
        """Return why the channel has closed. Usually the interpreter is ending, which takes a moment."""
        poller = select.poll()
        poller.register(self._pidfd, select.POLLIN)
        return self._reap() if poller.poll(_ENDING_MS) else _LostError("the code closed the interpreter's channel")

    def _reap(self) -> _LostError:
        """Reap the interpreter, which has ended, and return how it ended."""
        return _LostError(_describe_end(self._wait()))

    def _wait(self, options: int = 0) -> int:
        """Wait until the interpreter has ended, or for the events that the options name. Return its wait status."""
        _, status, usage = os.wait4(self._pid, options)
        if not os.WIFSTOPPED(status):
            self._pid = -1
            self._used = usage.ru_utime + usage.ru_stime
        return status

    def _interrupt(self, execution: _Execution, why: int) -> None:
        """Send the code a KeyboardInterrupt, and give it a moment to reply.

        Raises:
            _LostError: the code was interrupted before.
        """
        if execution.stopped != frames.NOT_STOPPED:
            raise _LostError("the code went on after it was interrupted")
        execution.stopped = why
        os.kill(self._pid, _SIGINT)
        execution.cpu_stop = self._check_use() + GRACE_SECONDS
        execution.wall_stop = time.monotonic() + 2 * GRACE_SECONDS

    def _check_use(self) -> float:
        """Return the CPU seconds that the interpreter has used.

        Raises _LostError if the interpreter exceeds another limit.
        """
        try:
            used = read_cpu_seconds(self._pid)
        except OSError:
            # The interpreter has just ended, which the poller reports by its descriptor.
            return 0.0
        if count_threads(self._pid) > MAX_THREADS:
            raise _LostError(f"more than {MAX_THREADS} threads")
        reason = directory.find_breach(self._work)
        if reason is None and self._free - directory.count_free_bytes(self._work) > directory.TOTAL_MIB * MIB:
            reason = directory.find_hidden_breach(self._work, self._pid)
        if reason is not None:
            raise _LostError(reason)
        return used

    def _count_held_bytes(self) -> int:
        """Return the bytes that the stopped interpreter holds in files, pipes and sockets.

        Raises:
            _LostError: the interpreter holds too much, or this machine hides its descriptors.
        """
        try:
            os.stat(f"/proc/{self._pid}/exe")
        except FileNotFoundError:
            raise _LostError("its first thread has ended") from None
        except OSError:
            raise _LostError("this machine hides what it holds") from None
        if count_threads(self._pid) > MAX_THREADS:
            raise _LostError(f"more than {MAX_THREADS} threads")
        reason, total = directory.measure(self._work)
        sizes: dict[tuple[int, int], int] = {}
        for fd in range(SESSION_OPEN_FILES):
            try:
                found = os.stat(f"/proc/{self._pid}/fd/{fd}")
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode) and found.st_nlink == 0:
                sizes[found.st_dev, found.st_ino] = found.st_blocks * 512
            elif stat.S_ISFIFO(found.st_mode):
                sizes[found.st_dev, found.st_ino] = _PIPE_BYTES
            elif stat.S_ISSOCK(found.st_mode):
                sizes[found.st_dev, found.st_ino] = _SOCKET_BYTES
        total += sum(size for inode, size in sizes.items() if inode not in self._own)
        if reason is None and total > directory.TOTAL_MIB * MIB:
            reason = f"more than {directory.TOTAL_MIB} MiB in files, pipes and sockets"
        if reason is not None:
            raise _LostError(reason)
        return total

    def _drain(self, execution: _Execution) -> None:
        """Read output of the stopped interpreter that has not been read yet."""
        for stream, fd in enumerate((self._out, self._err)):
            try:
                while _take_output(execution, stream, fd):
                    pass
            except BlockingIOError:
                pass

    def _kill(self) -> None:
        """Kill the interpreter if it still runs."""
        if self._pid > 0:
            # The interpreter is not reaped yet, so nobody else can have its process id.
            os.kill(self._pid, _SIGKILL)
            self._wait()

    def _end(self) -> None:
        try:
            self._kill()
            directory.empty(self._work)
        except OSError:
            # The slot's next session empties the directory.
            pass

    def _send(self, frame: int, payload: bytes) -> None:
        self._service.sendall(frames.FRAME.pack(frame, len(payload)) + payload)

    def _report_fault(self, text: str) -> None:
        try:
            self._send(frames.FAULT, text.encode(errors="replace")[:2000])
        except OSError:
            pass


def _identify(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _take_output(execution: _Execution, stream: int, fd: int) -> int:
    """Append the available output to the execution. Return the number of bytes, 0 at the end."""
    data = os.read(fd, _CHUNK)
    execution.take(stream, data)
    return len(data)


def _describe_end(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"the interpreter was ended by signal {os.WTERMSIG(status)}"
    return f"the interpreter ended with status {os.WEXITSTATUS(status)}"
