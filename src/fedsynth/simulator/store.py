"""Simulated clients' memory in one file: read and written by cohort, so memory does not grow with clients.

A record is a fixed number of float32. Writes go to fresh slots and become visible with `commit`, so a crash in the
middle of a round leaves the last committed round whole (the same idea as shadow paging).
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


class ClientStore:
    """Records of client memory, keyed by client number. Without a path it lives in an unnamed temporary file."""

    def __init__(self, path: Path | None = None) -> None:
        if path is not None:
            path.touch(exist_ok=True)
        self._file = tempfile.TemporaryFile() if path is None else path.open("r+b")  # noqa: SIM115
        self._slots = np.empty(0, dtype=np.int64)  # client -> slot, -1 if it never took part
        self._pending: dict[int, int] = {}
        self._free: list[int] = []
        self._used = 0

    def read(self, ids: np.ndarray, blank: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The memory of these clients, [clients, size] each; `blank` for those that have none."""
        sizes = {name: blank[name].numel() for name in sorted(blank)}  # a record's order is that of the names
        width = sum(sizes.values())
        if not width:
            return {}
        fresh = torch.cat([blank[name].reshape(-1) for name in sizes]).cpu().numpy()
        rows = np.empty((len(ids), width), dtype=np.float32)
        descriptor = self._file.fileno()
        for row, client in zip(rows, ids, strict=True):
            slot = self._pending.get(int(client), self._slot(int(client)))
            if slot < 0:
                row[:] = fresh
            else:
                os.preadv(descriptor, [row.data], slot * width * 4)
        pieces = torch.from_numpy(rows).split(list(sizes.values()), dim=1)
        return {name: piece.contiguous() for name, piece in zip(sizes, pieces, strict=True)}

    def write(self, ids: np.ndarray, memory: Mapping[str, Tensor]) -> None:
        """Remember for these clients; visible to others only after `commit`."""
        if not memory:
            return
        rows = torch.cat([memory[name].flatten(1) for name in sorted(memory)], dim=1)
        array = np.ascontiguousarray(rows.detach().cpu().numpy(), dtype=np.float32)
        stride = array.shape[1] * 4
        for client, row in zip(ids, array, strict=True):
            slot = self._free.pop() if self._free else self._grow()
            self._pending[int(client)] = slot
            data = row.tobytes()
            if os.pwrite(self._file.fileno(), data, slot * stride) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _slot(self, client: int) -> int:
        return int(self._slots[client]) if client < len(self._slots) else -1

    def _grow(self) -> int:
        self._used += 1
        return self._used - 1

    def commit(self, ids: np.ndarray | None = None) -> None:
        """Make the writes since the last commit (of these clients) the valid ones; slots they replace become free."""
        done = self._taken(ids)
        most = max(done, default=-1)
        if most >= len(self._slots):
            room = np.full(max(most + 1, 2 * len(self._slots)) - len(self._slots), -1, dtype=np.int64)
            self._slots = np.concatenate([self._slots, room])
        for client, slot in done.items():
            if self._slots[client] >= 0:
                self._free.append(int(self._slots[client]))
            self._slots[client] = slot

    def discard(self, ids: np.ndarray | None = None) -> None:
        """Forget the writes since the last commit (of these clients)."""
        self._free.extend(self._taken(ids).values())

    def _taken(self, ids: np.ndarray | None) -> dict[int, int]:
        """Take the writes of these clients off the waiting ones."""
        wanted = list(self._pending) if ids is None else ids.tolist()
        return {client: self._pending.pop(client) for client in wanted if client in self._pending}

    def index(self) -> dict[str, Tensor]:
        """Which slot holds which client, for a checkpoint and back through `restore`; the slots survive a power cut."""
        os.fsync(self._file.fileno())
        return {"store": torch.from_numpy(self._slots.copy())}

    def waiting(self, ids: np.ndarray | None = None) -> dict[str, Tensor]:
        """Which slot holds what is not yet valid (of these clients), for a checkpoint that keeps it."""
        wanted = (
            self._pending
            if ids is None
            else {c: self._pending[c] for c in ids.tolist() if c in self._pending}
        )
        pairs = np.array(sorted(wanted.items()), dtype=np.int64).reshape(-1, 2)
        return {"store/waiting": torch.from_numpy(pairs)}

    def restore(self, index: Mapping[str, Tensor]) -> None:
        """Go back to a checkpoint: anything written since is forgotten."""
        self._slots = index["store"].numpy().copy()
        waiting = index["store/waiting"].tolist() if "store/waiting" in index else []
        self._pending = {int(client): int(slot) for client, slot in waiting}
        taken = {*self._slots[self._slots >= 0].tolist(), *self._pending.values()}
        self._used = max(taken, default=-1) + 1
        self._free = [slot for slot in range(self._used) if slot not in taken]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class DeviceStore:
    """The same on a GPU, for runs without a folder: nothing is copied to the host between rounds.

    Many clients that keep much would fill the GPU: beyond `most_bytes` they are kept in a file, as without one.
    """

    def __init__(self, device: str, most_bytes: int = 2**30) -> None:
        self._device = device
        self._most_bytes = most_bytes
        self._rows: dict[str, Tensor] = {}
        self._places: dict[int, int] = {}
        self._on_disk: ClientStore | None = None

    def read(self, ids: np.ndarray, blank: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The memory of these clients, [clients, size] each; `blank` for those that have none."""
        if not blank:
            return {}
        fresh = [client for client in dict.fromkeys(ids.tolist()) if client not in self._places]
        size = sum(value.nbytes for value in blank.values())
        if self._on_disk is None and (len(self._places) + len(fresh)) * size > self._most_bytes:
            self._on_disk = self._moved()
        if self._on_disk is not None:
            return self._on_disk.read(ids, blank)
        for client in fresh:
            self._places[client] = len(self._places)
        for name, value in blank.items():
            added = value.to(self._device).reshape(1, -1).expand(len(fresh), -1)
            self._rows[name] = torch.cat([self._rows[name], added]) if name in self._rows else added.clone()
        index = self._index(ids)
        return {name: self._rows[name][index] for name in blank}

    def _moved(self) -> ClientStore:
        """Move what all clients keep into a file; nothing of it stays here."""
        store = ClientStore()
        store.write(np.fromiter(self._places, dtype=np.int64), self._rows)
        store.commit()
        self._rows.clear()
        self._places.clear()
        return store

    def write(self, ids: np.ndarray, memory: Mapping[str, Tensor]) -> None:
        """Remember for these clients."""
        if not memory:
            return
        if self._on_disk is not None:
            self._on_disk.write(ids, memory)
            return
        index = self._index(ids)
        for name, value in memory.items():
            self._rows[name][index] = value.flatten(1)

    def commit(self, ids: np.ndarray | None = None) -> None:
        """Nothing to do on the GPU: there is no file that a crash could leave half written."""
        if self._on_disk is not None:
            self._on_disk.commit(ids)

    def index(self) -> dict[str, Tensor]:
        """Nothing: this memory does not outlive its process."""
        return {}

    def waiting(self, ids: np.ndarray | None = None) -> dict[str, Tensor]:
        """Nothing either."""
        return {}

    def restore(self, index: Mapping[str, Tensor]) -> None:
        """Forget everything, as a new process would."""
        self._rows.clear()
        self._places.clear()
        if self._on_disk is not None:
            self._on_disk.close()
            self._on_disk = None

    def _index(self, ids: np.ndarray) -> Tensor:
        return torch.tensor([self._places[client] for client in ids.tolist()], device=self._device)
