"""A server that lies: it plays a schedule, decided by its seed, against real sites and keeps what they send.

Most of what it says is in order, else it would be refused at the door; each field is a lie now and then.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from random import Random

import torch
from lying_participant import Participant
from observer import Sum
from small_world import CLIENTS, HOME, NAMES, ROUNDS, VICTIM, composed, first_of, site_at, start

from fedsynth.deploy.link.messages import (
    Begin,
    Done,
    Invite,
    Message,
    Result,
    Settle,
    Status,
    Terms,
    Work,
    read,
    write,
)
from fedsynth.privacy.budget import Budget

LIES = (0.02, 0.06, 0.15)  # how often a field is a lie, by schedule
NAN, INF = 1.234567e-30, 1.234567e30  # what stands for them until the message is written
MODELS: dict[str, Callable[[torch.Tensor, Random], torch.Tensor]] = {
    "as it is": lambda model, random: model,
    "moved": lambda model, random: model + random.random(),
    "nan": lambda model, random: torch.full_like(model, NAN),
    "one nan": lambda model, random: torch.where(torch.arange(len(model)) == 0, NAN, model),
    "inf": lambda model, random: torch.full_like(model, INF),
    "huge": lambda model, random: model + 3e38,
    "tiny": lambda model, random: model * 0 + 1e-45,
}


@dataclass
class Run:
    """What the server knows of one run."""

    name: str
    terms: Terms  # in force, as the victim's site agreed to them
    session: int = 0
    version: int = 0
    first: int = 0  # lie about where clients begin, added to the truth
    epsilon: float = 0.0  # the largest that it was ever agreed for
    rounds: int = 0
    results: dict[str, list[str]] = field(default_factory=dict)  # by site
    participants: dict[str, Participant] = field(default_factory=dict)


@dataclass
class LyingServer:
    """Plays against the sites named in `honest`, which are real; `helpers` are fellow sites that help it."""

    seed: int
    terms: Terms
    folder: Path
    victim: float | None
    budget: Budget
    honest: tuple[str, ...] = (HOME,)
    helpers: tuple[str, ...] = ()
    sums: list[Sum] = field(default_factory=list)
    answers: list[Message] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)
    lies: list[str] = field(default_factory=list)
    forced: dict[str, object] = field(default_factory=dict)  # lies that are always told

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.often = self.random.choice(LIES)
        self.questions = self.random.choice(
            (0.1, 0.4)
        )  # how often it asks what is asked before the first round
        self.sites = {name: self._started(name) for name in self.honest}
        self.sent: list[tuple[str, bytes]] = []
        self.number = 0  # of the last masked sum

    def _started(self, name: str):
        return site_at(self.folder, name, self.victim, self.budget)

    def play(self, moves: int) -> None:
        """Begin a run and make so many moves."""
        self.begin("run", self.terms)
        for _ in range(moves):
            run = self.runs.get(self.random.choice(sorted(self.runs) or ["run"]))
            terms = self.terms if run is None else run.terms
            name = "run" if run is None else run.name
            choices: list[tuple[int, Callable[[], object]]] = [
                (60, lambda run=run: run and self.ask(run)),
                (6, lambda run=run: run and self.settle(run)),
                (6, self.replay),
                (6, lambda name=name, terms=terms: self.begin(name, self._other(terms))),
                (6, lambda name=name, terms=terms: self.begin(name, terms)),
                (4, lambda: self.begin("other", self.terms)),
                (3, self.restart),
                (2, lambda name=name: self.tell(Status(name))),
            ]
            weights, moves_there_are = zip(*choices, strict=True)
            self.random.choices(moves_there_are, weights)[0]()

    def lie(self, what: str, truth, *lies):
        """The truth, or now and then one of the lies."""
        if what in self.forced:
            return self.forced[what]
        if self.random.random() >= self.often:
            return truth
        chosen = self.random.choice(lies)
        self.lies.append(f"{what}: {str(chosen)[:60]}")
        return chosen

    def tell(self, message: Message, site: str = HOME) -> Message:
        """Send one message; what comes back is kept."""
        return self._deliver(site, written(message))

    def _deliver(self, site: str, payload: bytes) -> Message:
        self.sent.append((site, payload))
        answer = read(self.sites[site].handle(payload))
        self.answers.append(answer)
        return answer

    def replay(self) -> None:
        """Send an old message again; a sum that comes back is known already, or it is news."""
        site, payload = self.random.choice(self.sent)
        answer = self._deliver(site, payload)
        if site == HOME and isinstance(answer, Result):
            question = read(payload)
            assert isinstance(question, Work)
            self.note(self.runs[answer.run], question, answer)

    def restart(self) -> None:
        """The victim's site ends and is started again: what it did not write down is forgotten."""
        self.sites[HOME] = self._started(HOME)

    def _other(self, terms: Terms) -> Terms:
        noise = {**terms.values, "noise_multiplier": self.random.choice([0.5, 4.0, 100.0])}
        rounds = {**terms.values, "rounds": self.random.choice([1, 2, 30])}
        change = self.random.choice(
            [{"values": noise}, {"values": rounds}, {"epsilon": 500.0}, {"minimum_cohort": 1}]
        )
        self.lies.append(f"other terms: {change}")
        return replace(terms, **change)

    def begin(self, name: str, terms: Terms) -> None:
        """Invite and begin; the session grows unless that is the lie."""
        known = self.runs.get(name)
        session = self.lie("session", 1 + (0 if known is None else known.session), 0, 1, 7)
        sites, first = self.lie("sites", len(NAMES), 1, 1000), self.lie("first", 0, 1, 3)
        for site in self.honest:
            self.tell(Invite(name, terms), site)
            place = first_of(site) + first
            begin = Begin(name, session, terms, place, sites, {"encoder": start()["encoder"]})
            answer = self.tell(begin, site)
            if site == HOME and isinstance(answer, Done):
                run = known or Run(name, terms)
                run.terms, run.session, run.first, run.participants = terms, session, first, {}
                run.epsilon = max(run.epsilon, terms.epsilon)
                run.rounds = max(run.rounds, int(terms.values["rounds"]))
                self.runs[name] = run

    def settle(self, run: Run) -> None:
        """Say where the run stands."""
        version = self.lie("version", run.version, 0, 2, 3000)
        since = self.lie("since", 0, 1, 2, 3000)
        used = tuple(run.results.get(HOME, [])[-1:])
        over = self.lie("over", False, True)
        self.tell(Settle(run.name, run.session, version, since, used, over))

    def work(self, run: Run, job: str) -> dict[str, Work]:
        """An order for the clients of each honest site, alike but for their numbers."""
        everyone = list(range(CLIENTS))
        some = sorted(self.random.sample(everyone, self.random.randint(1, CLIENTS)))
        chosen = self.lie("ids", everyone, some, some, [VICTIM], [VICTIM], [0, 0], [99])
        version = self.lie("version", run.version, 0, 1, ROUNDS, ROUNDS + 1, 3000)
        since = self.lie("since", version, 0, version + 1)
        tensors = {}
        if self.lie("broadcast", job, "round", "balance") == "round":
            change = self.lie("model", "moved", *MODELS)
            tensors["parts/decoder"] = MODELS[change](start()["decoder"], self.random)
            if run.terms.trust == "distributed":
                turn = self.lie("turn", version, -1, 0, 2**62)
                tensors["mechanism/turn"] = torch.tensor([turn] * self.lie("turns", 1, 0, 2))
        part, sites = self.lie("part", 0, 1), self.lie("sites", len(NAMES), 1)
        session, forget = self.lie("session", run.session, 0, 1, 9), self.lie("used", False, True)
        orders = {}
        for site in self.honest:
            known = run.results.get(site, [])
            used = tuple(known[-1:] if forget else known)
            ids = torch.tensor([first_of(site) + run.first + number for number in chosen])
            orders[site] = Work(
                run.name, session, job, version, part, sites, since, used, {"ids": ids, **tensors}
            )
        return orders

    def ask(self, run: Run) -> None:
        """Ask for a sum, in the clear or under masks."""
        job = "balance" if self.random.random() < self.questions else "round"
        if run.terms.transport == "secagg":
            self.ask_masked(run, job)
        else:
            work = self.work(run, job)[HOME]
            answer = self.tell(work)
            self.keep(run, HOME, answer)
            if isinstance(answer, Result):
                self.note(run, work, answer)
        if self.random.random() < 0.7:
            run.version += 1

    def ask_masked(self, run: Run, job: str) -> None:
        """Ask for a masked sum."""
        raise NotImplementedError("this server asks for sums in the clear; see MaskingLiar")

    def keep(self, run: Run, site: str, answer: Message) -> None:
        """Remember the name of a result, to say later that it was used."""
        if isinstance(answer, Result):
            run.results.setdefault(site, []).append(answer.name)

    def note(self, run: Run, work: Work, result: Result) -> None:
        """Keep what a result says of the victim: a sum that gets the server's noise, or the victim's own message."""
        if "messages" not in result.tensors:
            return
        algorithm = composed(run.terms)
        mechanism = (algorithm.opening if work.job == "balance" else algorithm).mechanism
        messages = result.tensors["messages"].to(torch.float64).numpy()
        question = f"{work.job} {mechanism.noise_multiplier}"
        victim = first_of(HOME) + run.first + VICTIM
        ids = result.tensors["ids"].tolist()
        if run.terms.trust == "central":
            scale = mechanism.noise_multiplier * mechanism.clip.bound
            self.sums.append(Sum(run.name, question, messages.sum(0), scale))
        elif len(messages) == 1 or victim in ids:
            self.sums.append(
                Sum(run.name, question, messages[0 if len(messages) == 1 else ids.index(victim)])
            )


def written(message: Message) -> bytes:
    """The message as bytes, with numbers that are not finite, which an honest writer refuses to write."""
    payload = write(message)
    for marker, value in ((NAN, math.nan), (INF, math.inf)):
        payload = payload.replace(struct.pack("<f", marker), struct.pack("<f", value))
    hashed = slice(18, 50)  # of all that follows it
    return payload[: hashed.start] + sha256(payload[hashed.stop :]).digest() + payload[hashed.stop :]
