"""The interpreter of a live session: it executes one piece of code after another, in a single namespace.

It runs in the same process as the code, which can therefore change or forge everything that it reports. That is why no
verdict is based on a session's reply.
"""

# ruff: noqa: S102
# Why: the purpose of this module is to execute code.
from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # no stubs; `signal` itself makes enums of what it gives
import os
import struct
import sys
from collections.abc import Callable

from evalrun_executor.contained.frames import MAX_REPLY_TEXT, REPLY_HEAD

CHANNEL = 3
SIZE = struct.Struct("<I")
# The value of ast.PyCF_ONLY_AST.
_ONLY_AST = 0x400
# These names are bound before the code can replace them.
_read, _write, _leave = os.read, os.write, os._exit


class Session:
    """Executes the code that comes over the channel, until the channel closes."""

    def __init__(self, namespace: dict[str, object]) -> None:
        # The imports are made here, because every program pays for the zygote's pages, and the zygote needs none of
        # these modules.
        import _ast
        import linecache
        import traceback

        self._expression_statement, self._expression = _ast.Expr, _ast.Expression
        self._sources = linecache.cache
        self._format: Callable[..., list[str]] = traceback.format_exception
        self._namespace = namespace
        self._number = 0

    def run(self) -> None:
        """Announce that the session waits for code, then execute each piece and reply to it; never returns."""
        try:
            # Programs do not limit the digits of an integer either, and CPU time is limited anyway.
            if hasattr(sys, "set_int_max_str_digits"):
                sys.set_int_max_str_digits(0)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            _write_all(_pack_reply(b"", None))
            while True:
                (size,) = SIZE.unpack(_read_exactly(SIZE.size))
                _write_all(self._execute(_read_exactly(size)))
        except BaseException:  # noqa: BLE001 - the channel is closed, or the code has broken what is needed here
            _leave(1)

    def _execute(self, text: bytes) -> bytes:
        """Execute the code. Return the reply."""
        self._number += 1
        name = f"<cell {self._number}>"
        result, error = b"", None
        try:
            try:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                result = self._evaluate(text.decode(), name)
            finally:
                # The worker's SIGINT may come late. It must not interrupt our own code below.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        except BaseException as raised:  # noqa: BLE001 - the code's own, whatever it is
            # A SIGINT may have struck within the `finally`, before it took effect.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            error = self._describe_error(raised)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:  # noqa: BLE001, S112 - the code has closed or replaced it
                continue
        return _pack_reply(result, error)

    def _evaluate(self, source: str, name: str) -> bytes:
        """Execute the source.

        Return the text of its last expression's value; empty for None and without an expression.
        """
        # Tracebacks quote the source's lines from here.
        self._sources[name] = (len(source), None, source.splitlines(keepends=True), name)
        tree = compile(source, name, "exec", _ONLY_AST, dont_inherit=True)
        last = None
        if tree.body and type(tree.body[-1]) is self._expression_statement:
            last = self._expression(tree.body.pop().value)
        exec(compile(tree, name, "exec", dont_inherit=True), self._namespace)
        if last is None:
            return b""
        value = eval(compile(last, name, "eval", dont_inherit=True), self._namespace)  # noqa: S307 - as exec
        if value is None:
            return b""
        self._namespace["_"] = value
        return _cut_text(repr(value))

    def _describe_error(self, error: BaseException) -> tuple[bytes, bytes, bytes]:
        """Return the name, the text and the traceback of an exception."""
        name = type(error).__name__
        try:
            trace = error.__traceback__
            # The first frames are ours. The code's own traceback has none of them.
            while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
                trace = trace.tb_next
            lines = self._format(type(error), error, trace)
            return _cut_text(name), _cut_text(str(error)), _cut_text("".join(lines), end=True)
        except BaseException:  # noqa: BLE001 - a __str__ of the code's, or no memory left
            return _cut_text(name), b"", _cut_text(f"{name}: (no text: formatting it failed)\n")


def _cut_text(text: str, *, end: bool = False) -> bytes:
    """Return the text's start, or its end, in UTF-8."""
    cut = text[-MAX_REPLY_TEXT:] if end else text[:MAX_REPLY_TEXT]
    data = cut.encode("utf-8", "backslashreplace")
    return data[-MAX_REPLY_TEXT:] if end else data[:MAX_REPLY_TEXT]


def _pack_reply(result: bytes, error: tuple[bytes, bytes, bytes] | None) -> bytes:
    name, text, trace = error or (b"", b"", b"")
    head = REPLY_HEAD.pack(error is not None, len(result), len(name), len(text), len(trace))
    return head + result + name + text + trace


def _read_exactly(size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = _read(CHANNEL, size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


def _write_all(data: bytes) -> None:
    while data:
        data = data[_write(CHANNEL, data) :]
