"""Clients in this process: a cohort is cut into chunks, and each chunk trains as one stack of tensors."""

from __future__ import annotations

from collections import deque

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.clients import Clients
from fedsynth.federation.algorithm import Job
from fedsynth.federation.link import Arrival
from fedsynth.federation.state import ServerState
from fedsynth.rng import Rng
from fedsynth.simulator.store import ClientStore, DeviceStore

_CHUNK_BYTES = {"cpu": 4 * 2**20, "cuda": 4 * 2**30}
_DATA_BYTES = {"cpu": 2**28, "cuda": 2**31}  # of the rows of a chunk, padded to its longest client
_ROUND_NUMBER, _FEW = 32, 16
_TOGETHER = 4096  # clients whose messages are added up as they are made


class InProcess:
    """The simulator's link. Chunk size and device change speed and last bits, nothing else."""

    def __init__(
        self,
        clients: Clients,
        rng: Rng,
        *,
        device: str = "cpu",
        chunk: int | None = None,
        store: ClientStore | DeviceStore | None = None,
        first: int = 0,
    ) -> None:
        """`first` is the number of the first client here, where others are elsewhere."""
        self.clients = clients.to(device)
        on_gpu = torch.device(device).type == "cuda"
        self.store = store or (DeviceStore(device) if on_gpu else ClientStore())
        self._rng = rng
        self._device = device
        self._chunk = chunk
        self._first = first
        self._queue: deque[tuple[Job, np.ndarray, ServerState]] = deque()

    def start(self, job: Job, ids: np.ndarray, state: ServerState) -> None:
        """Queue the clients, sorted by number of rows so that a chunk pads little."""
        sizes = self.clients.sizes[ids - self._first]
        ordered = ids[np.argsort(sizes, kind="stable")]
        chunk = self._chunk or self._default_chunk(job)
        start = 0
        while start < len(ordered):
            stop = self._end(ordered, start, min(start + chunk, len(ordered)))
            self._queue.append((job, ordered[start:stop], state))
            start = stop

    def _end(self, ordered: np.ndarray, start: int, stop: int) -> int:
        """Where a chunk ends: earlier than at `stop` if a client with very many rows would make all others long."""
        room = _DATA_BYTES[torch.device(self._device).type] // (4 * max(1, self.clients.width))
        while (
            stop - start > 1 and (stop - start) * self.clients.sizes[ordered[stop - 1] - self._first] > room
        ):
            stop = start + (stop - start) // 2
        return stop

    def _default_chunk(self, job: Job) -> int:
        """As many clients as keep a stack of messages near the size of the cache (CPU) or well in memory (GPU)."""
        room = _CHUNK_BYTES[torch.device(self._device).type]
        return _TOGETHER if job.together else max(1, room // (4 * job.wire.dim))

    @property
    def waiting(self) -> int:
        """Chunks that are queued."""
        return len(self._queue)

    def next(self) -> Arrival:
        """Train the next chunk."""
        job, ids, state = self._queue.popleft()
        count = len(ids)
        stacked = self._fill_up(ids)
        data = self.clients.gather(stacked - self._first, self._device)
        data.mask[count:] = False
        memory = self.store.read(stacked - self._first, job.blank(state))
        memory = {name: value.to(self._device) for name, value in memory.items()}
        streams = self._rng.at("client", type(job).__name__, state.version)
        with torch.backends.cudnn.flags(
            enabled=True, allow_tf32=False
        ):  # float32 as on a CPU, to the last bits
            messages, memory = job.client_round(state, memory, data, stacked, streams)
        self.store.write(ids - self._first, {name: value[:count] for name, value in memory.items()})
        sent = messages[:count]
        plain, transport = sum(state.parts[part].nbytes for part in job.broadcast), job.transport
        down = count * transport.bytes_down(plain) if plain else 0
        up = count * transport.bytes_up(job.wire, sent[0].nbytes)
        return Arrival(ids, sent, state.version, bytes_up=up, bytes_down=down)

    def _fill_up(self, ids: np.ndarray) -> np.ndarray:
        """On a GPU, repeat a client (with no rows) up to a round number, so that recorded steps fit the next cohort.

        A few clients come in few sizes, and filling up would cost more than recording each.
        """
        if torch.device(self._device).type != "cuda" or len(ids) <= _FEW:
            return ids
        missing = -len(ids) % _ROUND_NUMBER
        return np.concatenate([ids, np.repeat(ids[:1], missing)])

    def absent(self, *, for_good: bool = False) -> np.ndarray:
        """Nobody."""
        return np.empty(0, dtype=np.int64)

    def commit(self, ids: np.ndarray | None = None) -> None:
        """Keep what the clients (these, or all) learned in the round that is now complete."""
        self.store.commit(None if ids is None else ids - self._first)

    def index(self, waiting: np.ndarray | None = None) -> dict[str, Tensor]:
        """Where in the store each client's memory lies, also of those whose last round is not complete but kept."""
        waiting_memory = {} if waiting is None else self.store.waiting(waiting - self._first)
        return {**self.store.index(), **waiting_memory}

    def restore(self, index: dict[str, Tensor]) -> None:
        """Go back to a checkpoint."""
        self._queue.clear()
        self.store.restore(index)

    def close(self, state: ServerState) -> None:
        """Nobody has to be told."""
