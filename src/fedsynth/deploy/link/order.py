"""Names by which server and site know that they speak of the same work and the same result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsynth.deploy.link.codec import BadMessage, fingerprint, fingerprint_of
from fedsynth.deploy.link.messages import Result, Work
from fedsynth.deploy.site.state import public
from fedsynth.federation.algorithm import Algorithm, Home, Job
from fedsynth.federation.link import Arrival
from fedsynth.federation.state import SEALED, ServerState


@dataclass
class Order:
    """Work that a site was asked for and has not answered; `told` names results that it was told to be used."""

    name: str
    site: str
    job: Job
    ids: np.ndarray
    version: int
    payload: bytes
    deadline: float
    resend: float
    used: tuple[str, ...] = ()
    sent: int = 0
    slow: float = math.inf  # when it is said that this takes long

    @property
    def due(self) -> float:
        """When something has to be done about it next."""
        return min(self.deadline, self.resend, self.slow)

    @property
    def key(self) -> str:
        """Sites may be asked for the same work, each of its own clients."""
        return f"{self.site} {self.name}"


def nothing(version: int, ids: np.ndarray, job: Job, sent: int = 0, *, spared: bool = False) -> Arrival:
    """The news that clients will not arrive."""
    empty, nobody = job.wire.zero()[None][:0], ids[:0]
    gone, left_alone = (nobody, ids) if spared else (ids, nobody)
    return Arrival(nobody, empty, version, 0, sent, len(ids), gone, spared=left_alone)


def broadcast_of(algorithm: Algorithm, state: ServerState) -> dict[str, Tensor]:
    """Return what clients may know: shared parts, and the mechanism's state but for what it keeps secret."""
    sealed = SEALED in state.memory  # nobody here can open the average: sites do
    parts = algorithm.unsealed if sealed else algorithm.broadcast
    sent = {f"parts/{name}": state.parts[name] for name in parts}
    sent |= {SEALED: state.memory[SEALED]} if sealed else {}
    secret = tuple(getattr(algorithm.mechanism, "secret", ()))
    return sent | {f"mechanism/{name}": value for name, value in public(state.mechanism, secret).items()}


def once_for_all(job: Job) -> bool:
    """Whether what clients send is private (or open) already, so that asking twice must give the same message.

    Under local privacy a second message with other noise would be a second release. Noise that the server adds, or
    that is shared out over a cohort, is drawn anew for each sum: then a repeated round is done, and paid for, again.
    """
    return all(charge.release.trust == "local" for charge in job.charges())


def needs_all(job: Job) -> bool:
    """Whether all clients of a site have to be in its message: each brings a share of the noise that is accounted."""
    return any(charge.release.trust == "distributed" for charge in job.charges())


def order_of(work: Work, ids: np.ndarray, job: Job) -> str:
    """The name of this work: equal for requests that must have the same answer."""
    sent = {name: value for name, value in work.tensors.items() if name != "ids"}
    about = (work.run, work.key, fingerprint_of(sent))
    if once_for_all(job):
        return fingerprint(*about)
    return fingerprint(*about, work.session, ids.tobytes())


def result_name(order: str, carried: Mapping[str, Tensor], blob: bytes) -> str:
    """The name of a result: two different results never share it."""
    return fingerprint(order, fingerprint_of(carried), blob)


def client_numbers(tensors: Mapping[str, Tensor], first: int, end: int) -> np.ndarray:
    """The clients that a message is about, if they are ascending numbers of the site's own."""
    ids = tensors.get("ids")
    if ids is None or ids.dtype != torch.int64 or ids.dim() != 1 or not len(ids):
        raise BadMessage("ids: expected the numbers of one or more clients")
    numbers: np.ndarray = ids.numpy()
    if (np.diff(numbers) <= 0).any() or numbers[0] < first or numbers[-1] >= end:
        raise BadMessage(f"ids: expected ascending numbers from {first} to {end - 1}")
    return numbers


def opened(result: Result, job: Job, first: int, end: int) -> tuple[np.ndarray, Tensor]:
    """The clients in a result and their messages, if they have the layout of this job; sealed ones stay bytes."""
    ids = client_numbers(result.tensors, first, end)
    if result.blob and set(result.tensors) == {"ids"}:
        return ids, torch.frombuffer(bytearray(result.blob), dtype=torch.uint8)[None]
    if result.blob or set(result.tensors) != {"ids", "messages"}:
        raise BadMessage("a result holds ids and messages, or ids and what the transport sealed")
    messages = result.tensors["messages"]
    check_messages(job, messages, len(ids))
    return ids, messages


def check_messages(job: Job, messages: Tensor, clients: int) -> None:
    """Refuse messages that do not have the form of the job's wire."""
    if not job.wire.fits(messages, clients):
        raise BadMessage(
            f"messages are {messages.dtype} {tuple(messages.shape)}; expected what {clients} clients send as "
            f"{job.wire.kind} of {job.wire.dim} numbers"
        )


def remembers(algorithm: Algorithm | None) -> bool:
    """Whether clients keep anything over rounds."""
    return algorithm is not None and (bool(algorithm.keep) or Home.CLIENT in algorithm.homes.values())
