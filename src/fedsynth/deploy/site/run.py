"""One run at a site: it pays, trains its clients, and keeps what they learned only if the server used it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.clients import Clients
from fedsynth.deploy.link.codec import BadMessage
from fedsynth.deploy.link.messages import Begin, Result, Work, write
from fedsynth.deploy.link.order import client_numbers, needs_all, order_of, result_name
from fedsynth.deploy.site.payer import SitePayer
from fedsynth.deploy.site.state import RunFolder, SiteProgress, Waiting, public
from fedsynth.errors import FedsynthError
from fedsynth.federation.algorithm import Algorithm, Home, Job
from fedsynth.federation.state import SEALED, ServerState
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess


class Refusal(FedsynthError):
    """Raised where a site refuses: the text is the reason that the coordinator sees."""

    def __init__(self, code: str, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.code = code
        self.final = final


class Sealer(Protocol):
    """A site's half of a transport that hides messages from the server: bytes in, bytes out.

    What it must remember it keeps in the folder that it was made with; both calls may be repeated.
    """

    def stage(self, version: int, name: str, payload: bytes) -> bytes:
        """One step of its protocol, for example an exchange of keys."""

    def seal(self, job: str, total: Tensor, clients: int) -> bytes:
        """The site's sum [1, ...] of the messages of so many clients as only the transport can add it up."""

    def unseal(self, sealed: bytes) -> dict[str, Tensor]:
        """The shared parts in a sealed average, where sites open it themselves."""


Seal = Callable[[str, Algorithm, Path], Sealer]  # run, algorithm, folder for its secrets


@dataclass(frozen=True)
class Labor:
    """Who works and how: the site's clients, its randomness, and settings that change speed alone."""

    clients: Clients
    rng: Rng
    device: str = "cpu"
    chunk: int | None = None


class SiteRun:
    """The run between the server's messages; every change is on disk before anything is answered."""

    def __init__(
        self,
        begin: Begin,
        algorithm: Algorithm,
        folder: RunFolder,
        payer: SitePayer,
        labor: Labor,
        sealer: Sealer | None = None,
    ) -> None:
        self.begin = begin
        self.algorithm = algorithm
        self.payer = payer
        self.sealer = sealer
        self._folder = folder
        self._labor = labor
        self.standing: SiteProgress = folder.load()

    @property
    def rounds(self) -> int:
        """The rounds that this site agreed to."""
        return self.algorithm.rounds

    def settle(self, used: tuple[str, ...], since: int, version: int) -> None:
        """Make what was used valid and forget what never will be; the rounds that happened are paid for.

        The answer to a question is kept to the end: asked for under another name, it would be another release.
        """
        self.payer.catch_up(version)
        rounds = [one for one in self.standing.waiting if one.job == "round"]
        named = {one.name for one in rounds if one.name in used}
        void = {one.name for one in rounds if one.version < since} - named
        if named or void or since > self.standing.since:
            for one in rounds:
                if one.name in named:
                    self._folder.store.commit(one.clients)
                elif one.name in void:
                    self._folder.store.discard(one.clients)
            fresh = self.standing.used(named, self.algorithm.schedule.separation).without(void)
            self._save(replace(fresh, since=max(since, fresh.since)))

    def finish(self) -> None:
        """The run is over: its private parts are removed."""
        if not self.standing.over:
            self._folder.store.discard()
            self._save(replace(self.standing, waiting=(), over=True))
        self._folder.forget()

    def _save(self, standing: SiteProgress) -> None:
        self._folder.save(standing)
        self.standing = standing

    def answer(self, work: Work) -> bytes:
        """The result of this work: the same bytes however often it is asked for."""
        job = self._job(work.job)
        ids = self._ids(work, job)
        order = order_of(work, ids, job)
        if work.version < self.standing.since:
            raise Refusal("stale", f"version {work.version} is settled here; it is not done again")
        once = job is not self.algorithm  # a question is asked before the first round, and not again
        earlier = next(
            (one for one in self.standing.waiting if one.key == work.key or (once and one.job == work.job)),
            None,
        )
        if earlier is not None and earlier.order == order:
            return self._folder.result(earlier.name)
        again = 0 if earlier is None else self._again(work, earlier)
        local = ids - self.begin.first
        if job is self.algorithm and work.version < self.standing.floor(local):
            raise Refusal(
                "stale", f"version {work.version}: a result of these clients was used; it is too soon"
            )
        others = [one for one in self.standing.waiting if one is not earlier and one.job == work.job]
        if any(np.intersect1d(one.clients, local).size for one in others):
            raise Refusal("stale", f"version {work.version}: some of these clients still work for another")
        state = self._state(work, job)
        if job.schedule.buffered and self.payer.had_their_turns(work.version, local, again):
            turns = job.schedule.participations(self.algorithm.rounds)
            raise Refusal("turns", f"version {work.version}: these clients had the {turns} turns of this run")
        self.payer.pay(job, work.version, local, again)
        if earlier is not None:
            if earlier.job == "round":
                self._folder.store.discard(earlier.clients)
            self._save(self.standing.without({earlier.name}))
        return self._labored(work, job, order, ids, state)

    def _again(self, work: Work, earlier: Waiting) -> int:
        """The session by which a repetition is told apart; only a server that was started again may ask for one."""
        if work.session <= earlier.session:
            raise Refusal(
                "stale", f"version {work.version} was answered already, to another question about it"
            )
        return work.session

    def _labored(self, work: Work, job: Job, order: str, ids: np.ndarray, state: ServerState) -> bytes:
        messages, senders = self._messages(job, ids, state)
        carried: dict[str, Tensor] = {"ids": torch.from_numpy(ids)}
        blob = b""
        if self.sealer is None or job.transport.name == "clear":
            carried["messages"] = messages
        else:
            blob = self.sealer.seal(work.job, messages, senders)
        name = result_name(order, carried, blob)
        result = write(Result(work.run, order, name, work.version, carried, blob, self.payer.shown))
        self._folder.keep(name, result)
        fresh = Waiting(work.key, order, name, work.session, work.version, ids - self.begin.first)
        self._save(replace(self.standing, waiting=(*self.standing.waiting, fresh)))
        return result

    def _messages(self, job: Job, ids: np.ndarray, state: ServerState) -> tuple[Tensor, int]:
        """One row, the sum over the clients, and how many of them are in it.

        A row a client where messages have another form than their sum.
        """
        labor, chunk = self._labor, self._labor.chunk
        at_once = getattr(self.algorithm.record_sums, "at_site", None)
        if at_once is not None and job is self.algorithm and not labor.rng.reproducible:
            job, chunk = replace(self.algorithm, record_sums=at_once()), None
        link = InProcess(
            labor.clients,
            labor.rng,
            device=labor.device,
            chunk=chunk,
            store=self._folder.store,
            first=self.begin.first,
        )
        link.start(job, ids, state)
        total, rows, senders = job.wire.zero(), [], set[int]()
        while len(senders) < len(ids):
            arrival = link.next()
            messages = arrival.messages.cpu()
            senders |= {*arrival.ids.tolist()}
            if messages.shape[1:] != total.shape or len(ids) == 1:
                rows.append(messages)
            else:
                total = job.wire.add(total, messages, torch.ones(len(messages)))
        return (torch.cat(rows) if rows else total[None]), len(senders)

    def _job(self, name: str) -> Job:
        jobs = {"round": self.algorithm, "balance": self.algorithm.opening}
        job = jobs.get(name)
        if job is None:
            raise BadMessage(f"job={name[:40]!r}: this run has no such job")
        return job

    def _ids(self, work: Work, job: Job) -> np.ndarray:
        here = len(self._labor.clients)
        ids = client_numbers(work.tensors, self.begin.first, self.begin.first + here)
        if needs_all(job) and len(ids) != here:
            raise Refusal(
                "policy",
                f"ids: {len(ids)} of the {here} clients of this site are asked; each of them adds a share of the noise "
                "that the promise counts, so all of them have to be",
            )
        return ids

    def _state(self, work: Work, job: Job) -> ServerState:
        """The broadcast as a state; each tensor must have the layout that this site's own objects expect."""
        parts, mechanism = {}, {}
        sealed = self._sealed(work, job)
        if job is self.algorithm:
            names_sent = self.algorithm.unsealed if sealed else self.algorithm.broadcast
            parts = {name: self.algorithm.layouts[name].size for name in names_sent}
            secret = tuple(getattr(self.algorithm.mechanism, "secret", ()))
            mechanism = public(self.algorithm.mechanism.init(), secret)
        expected = {f"parts/{name}": (torch.float32, (size,)) for name, size in parts.items()}
        names = {
            "ids",
            *expected,
            *(f"mechanism/{name}" for name in mechanism),
            *((SEALED,) if sealed else ()),
        }
        if set(work.tensors) != names:
            odd = ", ".join(sorted(set(work.tensors) ^ names))
            raise BadMessage(f"tensors {odd[:200]}: missing or not expected in this run")
        for name, (dtype, shape) in expected.items():
            given = work.tensors[name]
            if given.dtype != dtype or tuple(given.shape) != shape:
                raise BadMessage(f"{name} is {given.dtype} {tuple(given.shape)}; expected {dtype} {shape}")
        for name, like in mechanism.items():
            given = work.tensors[f"mechanism/{name}"]
            if given.dtype != like.dtype or given.dim() != like.dim():
                raise BadMessage(
                    f"mechanism/{name} is {given.dtype} with {given.dim()} axes; "
                    f"expected {like.dtype} with {like.dim()}"
                )
        sent = {name: work.tensors[f"parts/{name}"] for name in parts}
        if sealed and self.sealer is not None:
            sent |= self.sealer.unseal(sealed)
        public_state = {name: work.tensors[f"mechanism/{name}"] for name in mechanism}
        return ServerState(work.version, {**self.begin.tensors, **sent}, {}, public_state)

    def _sealed(self, work: Work, job: Job) -> bytes:
        """The sealed average that the broadcast is, where the server cannot open it; none in the first round."""
        given = work.tensors.get(SEALED)
        if given is None or job is not self.algorithm or not self.algorithm.transport.blind:
            return b""
        if given.dtype != torch.uint8 or given.dim() != 1 or not len(given):
            raise BadMessage(f"{SEALED} is {given.dtype} with {given.dim()} axes; expected bytes")
        return given.numpy().tobytes()


def check_start(algorithm: Algorithm, tensors: Mapping[str, Tensor]) -> None:
    """The starting point of the parts that stay with clients must have the layout of the model."""
    expected = {
        part: algorithm.layouts[part].size for part, home in algorithm.homes.items() if home is Home.CLIENT
    }
    layout = {name: (given.dtype, tuple(given.shape)) for name, given in tensors.items()}
    if layout != {part: (torch.float32, (size,)) for part, size in expected.items()}:
        raise BadMessage(f"begin: the parts {layout} do not have the layout of {algorithm.name}: {expected}")
