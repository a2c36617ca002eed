"""Clients in this process: a cohort is cut into chunks, and each chunk trains as one stack of tensors.

With several devices, each trains a chunk at the same time. What clients keep is read and written by one thread, and
chunks arrive in the order in which they were cut, so that times change no result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.clients import Clients
from fedsynth.federation.algorithm import Algorithm, Job
from fedsynth.federation.link import Arrival
from fedsynth.federation.state import ServerState
from fedsynth.models.model import with_own_layers
from fedsynth.rng import Rng
from fedsynth.simulator.devices import precision
from fedsynth.simulator.store import ClientStore, DeviceStore

_CHUNK_BYTES = {"cpu": 4 * 2**20, "cuda": 4 * 2**30}
_DATA_BYTES = {"cpu": 2**28, "cuda": 2**31}  # of the rows of a chunk, padded to its longest client
_FEW = 16
_TOGETHER = 4096  # clients whose messages are added up as they are made


@dataclass(frozen=True)
class _Chunk:
    """Clients that train together, and what they begin with; `filled` has some of them twice."""

    job: Job
    ids: np.ndarray
    filled: np.ndarray
    state: ServerState
    memory: Mapping[str, Tensor]
    device: str


class InProcess:
    """The simulator's link. Chunk size and devices change speed and last bits, nothing else.

    `matmul` tf32 trades digits of what clients compute at home on a GPU for speed: clip and noise come after.
    """

    def __init__(
        self,
        clients: Clients,
        rng: Rng,
        *,
        device: str = "cpu",
        matmul: str | None = None,
        chunk: int | None = None,
        store: ClientStore | DeviceStore | None = None,
        first: int = 0,
    ) -> None:
        """`first` is the number of the first client here, where others are elsewhere.

        `device` may be several with commas between: "cuda:0,cuda:1".
        """
        self._devices = device.split(",")
        self._rows = {name: clients.to(name) for name in dict.fromkeys(self._devices)}
        self.clients = self._rows[self._devices[0]]
        self._kind = torch.device(self._devices[0]).type
        alone = self._kind == "cuda" and len(self._devices) == 1
        self.store = store or (DeviceStore(device) if alone else ClientStore())
        self._rng = rng
        self._matmul = matmul
        self._chunk = chunk
        self._first = first
        self._queue: deque[tuple[Job, np.ndarray, ServerState]] = deque()
        self._trained: deque[Arrival] = deque()
        self._jobs: dict[tuple[int, int], tuple[Job, Job]] = {}

    def start(self, job: Job, ids: np.ndarray, state: ServerState) -> None:
        """Queue the clients, sorted by number of rows so that a chunk pads little."""
        sizes = self.clients.sizes[ids - self._first]
        ordered = ids[np.argsort(sizes, kind="stable")]
        share = -(-len(ordered) // len(self._devices))
        chunk = self._chunk or max(1, min(share, self._default_chunk(job)))
        start = 0
        while start < len(ordered):
            stop = self._end(ordered, start, min(start + chunk, len(ordered)))
            self._queue.append((job, ordered[start:stop], state))
            start = stop

    def _end(self, ordered: np.ndarray, start: int, stop: int) -> int:
        """Where a chunk ends: earlier than at `stop` if a client with very many rows would make all others long."""
        room = _DATA_BYTES[self._kind] // (4 * max(1, self.clients.width))
        while (
            stop - start > 1 and (stop - start) * self.clients.sizes[ordered[stop - 1] - self._first] > room
        ):
            stop = start + (stop - start) // 2
        return stop

    def _default_chunk(self, job: Job) -> int:
        """As many clients as keep a stack of messages near the size of the cache (CPU) or well in memory (GPU)."""
        room = _CHUNK_BYTES[self._kind]
        return _TOGETHER if job.together else max(1, room // (4 * job.wire.dim))

    @property
    def waiting(self) -> int:
        """Chunks that are queued."""
        return len(self._queue)

    def next(self) -> Arrival:
        """Train the next chunk, and one on each other device beside it."""
        if not self._trained:
            self._trained.extend(self._train())
        return self._trained.popleft()

    def _train(self) -> list[Arrival]:
        chunks = [self._taken(worker) for worker in range(min(len(self._devices), len(self._queue)))]
        with precision(self._matmul):
            if len(chunks) == 1:
                results = [self._worked(chunks[0])]
            else:
                with ThreadPoolExecutor(len(chunks)) as pool:
                    results = list(pool.map(self._worked, chunks))
        arrivals = []
        for chunk, (messages, memory) in zip(chunks, results, strict=True):
            count = len(chunk.ids)
            self.store.write(chunk.ids - self._first, {name: value[:count] for name, value in memory.items()})
            arrivals.append(_arrival(chunk, messages[:count].to(self._devices[0])))
        return arrivals

    def _taken(self, worker: int) -> _Chunk:
        """The next chunk, with what its clients kept, for one of the workers."""
        job, ids, state = self._queue.popleft()
        filled = self._fill_up(ids)
        memory = self.store.read(filled - self._first, job.blank(state))
        return _Chunk(self._job_of(worker, job), ids, filled, state, memory, self._devices[worker])

    def _worked(self, chunk: _Chunk) -> tuple[Tensor, dict[str, Tensor]]:
        """The messages of a chunk's clients, and what they keep now, on its device."""
        device = chunk.device
        with torch.cuda.device(device) if self._kind == "cuda" else nullcontext():
            data = self._rows[device].gather(chunk.filled - self._first, device)
            if chunk.job.together:
                data.mask[len(chunk.ids) :] = False
            memory = {name: value.to(device) for name, value in chunk.memory.items()}
            streams = self._rng.at("client", type(chunk.job).__name__, chunk.state.version)
            messages, kept = chunk.job.client_round(chunk.state, memory, data, chunk.filled, streams)
        return messages, dict(kept)

    def _job_of(self, worker: int, job: Job) -> Job:
        """The job with a model and phases of the worker's own.

        Layers hold the weights of the clients that train just now, and a phase what one GPU recorded.
        """
        if worker == 0 or not isinstance(job, Algorithm):
            return job
        key = (worker, id(job))
        if key not in self._jobs:
            own, plan = copy(job), tuple(replace(phase) for phase in job.plan)
            object.__setattr__(own, "plan", plan)
            object.__setattr__(own, "model", with_own_layers(job.model))
            self._jobs[key] = own, job  # the job too, or another could have its id one day
        return self._jobs[key][0]

    def _fill_up(self, ids: np.ndarray) -> np.ndarray:
        """On a GPU, repeat a client up to a round number, so that recorded steps fit the next cohort.

        At most an eighth is added; what comes of it is dropped, and where sums are sent, it has no rows. A few clients
        come in few sizes, and filling up would cost more than recording each.
        """
        if self._kind != "cuda" or len(ids) <= _FEW:
            return ids
        missing = -len(ids) % (1 << (len(ids).bit_length() - 4))
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
        self._trained.clear()
        self.store.restore(index)

    def close(self, state: ServerState) -> None:
        """Nobody has to be told."""


def _arrival(chunk: _Chunk, sent: Tensor) -> Arrival:
    job, state, count = chunk.job, chunk.state, len(chunk.ids)
    plain = sum(state.parts[part].nbytes for part in job.broadcast)
    down = count * job.transport.bytes_down(plain) if plain else 0
    up = count * job.transport.bytes_up(job.wire, sent[0].nbytes)
    return Arrival(chunk.ids, sent, state.version, bytes_up=up, bytes_down=down)
