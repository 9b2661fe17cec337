"""Moves the bytes of files into tensors on a device, or compares them; several threads read at once.

15 GB in the page cache reach a GPU in about half a second; a single thread that copies memory which is not pinned takes
ten times as long.
"""

import os
import queue
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, Final

import torch

from evalrun_generator.weights.checkpoint_files import UnfitCheckpointError
from evalrun_generator.weights.moves import Move, Piece, cut

PIECE_BYTES: Final = 8 << 20
LANES: Final = 12
"""Number of reading threads: each has two pieces of pinned memory, and two on the device."""


class _Lane:
    """The buffers of a thread. One is filled from a file while the other is on its way to the device."""

    def __init__(self, device: Any) -> None:  # noqa: ANN401 - torch.device
        on_gpu = device.type == "cuda"
        self._streams = [torch.cuda.Stream(device) if on_gpu else None for _ in range(2)]
        self._host = [torch.empty(PIECE_BYTES, dtype=torch.uint8, pin_memory=on_gpu) for _ in range(2)]
        self._rows = torch.empty(PIECE_BYTES, dtype=torch.uint8)
        """Whole rows of a file. Only some of their columns go to the device."""
        self._there = [torch.empty(PIECE_BYTES, dtype=torch.uint8, device=device) for _ in range(2)]
        self._equal = [torch.ones((), dtype=torch.bool, device=device) for _ in range(2)]
        self._turn = 0

    def take(self, piece: Piece, *, compares: bool) -> None:
        """Read a piece and send it on its way. Raises UnfitCheckpointError if the file has become shorter."""
        turn = self._turn = 1 - self._turn
        stream, host = self._streams[turn], self._host[turn][: piece.length]
        if stream is not None:
            stream.synchronize()
        self._fill(host, piece)
        target = piece.move.target[piece.offset : piece.offset + piece.length]
        with nullcontext() if stream is None else torch.cuda.stream(stream):
            if compares:
                there = self._there[turn][: piece.length]
                there.copy_(host, non_blocking=True)
                self._equal[turn] &= (there == target).all()
            else:
                target.copy_(host, non_blocking=True)

    def _fill(self, host: Any, piece: Piece) -> None:  # noqa: ANN401 - torch.Tensor
        columns = piece.move.columns
        if columns.width == columns.row:
            _read(piece, host)
            return
        rows = self._rows[: piece.read]
        _read(piece, rows)
        last = columns.first + columns.width
        host.view(-1, columns.width).copy_(rows.view(-1, columns.row)[:, columns.first : last])

    def finish(self) -> bool:
        """Finish all transfers. Return whether everything compared since the last call was equal."""
        for stream in self._streams:
            if stream is not None:
                stream.synchronize()
        were_equal = all(bool(each) for each in self._equal)
        for each in self._equal:
            each.fill_(value=True)
        return were_equal


class Lanes:
    """Buffers and threads of a device, made once, because pinning memory takes as long as filling it."""

    def __init__(self, device: Any) -> None:  # noqa: ANN401 - torch.device
        self._device = device
        self._lanes = [_Lane(device) for _ in range(LANES)]
        self._synchronize()

    def copy(self, moves: Sequence[Move]) -> None:
        """Fill each target from its file. Raises UnfitCheckpointError or OSError; some targets may then be filled."""
        self._go(moves, compares=False)

    def compare(self, moves: Sequence[Move]) -> bool:
        """Return whether each target holds its file's bytes, which are read to their end. Raises as `copy`."""
        return self._go(moves, compares=True)

    def _go(self, moves: Sequence[Move], *, compares: bool) -> bool:
        pieces: queue.SimpleQueue[Piece | None] = queue.SimpleQueue()
        for move in moves:
            for piece in cut(move, PIECE_BYTES):
                pieces.put(piece)
        for _ in self._lanes:
            pieces.put(None)

        def work(lane: _Lane) -> bool:
            if self._device.type == "cuda":
                torch.cuda.set_device(self._device)
            while (piece := pieces.get()) is not None:
                lane.take(piece, compares=compares)
            return lane.finish()

        self._synchronize()
        with ThreadPoolExecutor(len(self._lanes)) as pool:
            results = [pool.submit(work, lane) for lane in self._lanes]
        # Every result is read, because an error in any must be seen.
        were_equal = [result.result() for result in results]
        return all(were_equal)

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _read(piece: Piece, buffer: Any) -> None:  # noqa: ANN401 - torch.Tensor
    view = memoryview(buffer.numpy())
    descriptor = os.open(piece.move.file, os.O_RDONLY)
    try:
        done = 0
        while done < piece.read:
            count = os.preadv(descriptor, [view[done:]], piece.start + done)
            if count == 0:
                raise UnfitCheckpointError(f"{piece.move.file} ends after {piece.start + done} bytes")
            done += count
    finally:
        os.close(descriptor)
