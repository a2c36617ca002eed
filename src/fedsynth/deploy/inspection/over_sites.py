"""The clients of an inspection at their sites: each step is a run of its own, over the sites that began it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from fedsynth.deploy.link.channel import Channel
from fedsynth.deploy.link.ledger_heads import LedgerHeads
from fedsynth.deploy.link.messages import Settle, Terms, write
from fedsynth.deploy.link.patience import Patience
from fedsynth.deploy.link.remote import Remote
from fedsynth.deploy.link.roster import Roster
from fedsynth.deploy.participation import terms_of
from fedsynth.errors import FedsynthError
from fedsynth.federation.algorithm import Algorithm, Home, secret_draw
from fedsynth.federation.loop import Pay, ask
from fedsynth.federation.pace import Pace, watched_stoppage
from fedsynth.federation.query import Query
from fedsynth.federation.state import ServerState
from fedsynth.inspection.agenda import Agenda
from fedsynth.inspection.plan import InspectionPlan, ModelSource
from fedsynth.inspection.population import learned
from fedsynth.inspection.request import Inspection
from fedsynth.inspection.step import InspectionQuestion, SelectionTraining, Step
from fedsynth.inspection.survey import InspectionSurvey
from fedsynth.privacy.mechanism import Charge, When
from fedsynth.rng import Rng

AGAIN = "begin another inspection: this one is not resumed, and what it released so far counts"


class Declined(FedsynthError):
    """Sites refused the inspection as calibrated, before anything was asked: it can be calibrated without them."""

    def __init__(self, sites: Iterable[str]) -> None:
        super().__init__(f"{', '.join(sites)}: will not take part")
        self.sites = frozenset(sites)


@dataclass(frozen=True)
class Call:
    """How sites are called: over which channel, for which inspection, with which model. `content` is its ONNX file."""

    channel: Channel
    name: str
    inspection: Inspection
    source: ModelSource = field(default_factory=ModelSource)
    content: bytes = b""
    minimum: int = 1
    patience: Patience = field(default_factory=Patience)
    tell: Callable[[str, int, str], None] = lambda site, version, what: None
    now: Callable[[], float] = time.monotonic
    make_pace: Callable[..., Pace] = Pace
    heads: LedgerHeads = field(default_factory=LedgerHeads)

    @property
    def first_question(self) -> InspectionQuestion:
        """The first question; sites are invited to it."""
        return InspectionSurvey.of(self.inspection.selections).all[0]

    def gather(self) -> Roster:
        """The sites that would take part, and how many clients they have; noise is calibrated to these."""
        noise = 1.0 if self.inspection.request.target else None
        plan = InspectionPlan(self.name, self.inspection.selections, noise, self.source, self.first_question)
        return self.remote(plan).invite(self.terms(plan, 0, {}))

    def release(self, roster: Roster) -> None:
        """Tell the sites that the inspection is over, or calibrated anew: they need reserve nothing more for it."""
        over = write(Settle(self.name, 0, 0, 0, (), True))
        for site in roster.members:
            self.channel.send(site, over)

    def say(self, words: str) -> None:
        """Tell whoever waits what the server does now."""
        self.tell("server", 0, words)

    def remote(self, plan: InspectionPlan) -> Remote:
        """A link for the run of one step."""
        known = (self.minimum, self.patience, self.now, self.tell, self.content)
        return Remote(self.channel, plan.run, *known, f"start the others again and {AGAIN}", heads=self.heads)

    def terms(self, plan: InspectionPlan, clients: int, values: dict[str, object]) -> Terms:
        """The terms that sites agree to."""
        inspection = self.inspection
        plain = terms_of(inspection.request, inspection.schema, values, clients, self.minimum)
        return replace(plain, inspection=plan.to_dict())


@dataclass
class AtSites:
    """A population for an agenda that was calibrated to the clients of these sites."""

    call: Call
    agenda: Agenda
    roster: Roster
    _begun: bool = field(default=False, init=False)

    def ask(self, question: InspectionQuestion, query: Query, rng: Rng, pay: Pay) -> np.ndarray:
        """Ask all sites; who is away answers nothing, and nobody divides by how many answered."""
        algorithm = replace(self.agenda.trainer.algorithm(1.0), opening=query)
        own = [part for part, home in algorithm.homes.items() if home is Home.CLIENT]
        state = ServerState(0, {part: torch.zeros(algorithm.layouts[part].size) for part in own})
        link = self._opened(question, algorithm, state)
        answer = ask(query, link, state, rng, pay).numpy()
        self._closed(link, state)
        return answer

    def train(self, step: SelectionTraining, algorithm: Algorithm, rng: Rng, pay: Pay) -> ServerState:
        """Train on what the sites' clients select."""
        state = algorithm.init(rng.at("init"))
        link = self._opened(step, algorithm, state)
        if secret_draw(algorithm) and not rng.reproducible:
            pay = self._paced(pay, link)
        state = learned(algorithm, link, state, rng, pay)
        self._closed(link, state)
        return state

    def _paced(self, pay: Pay, link: Remote) -> Pay:
        """Pay at the ticks of a public pace: the ledger tells when each round was paid for."""
        pace = self.call.make_pace(present=lambda: link.roster.present, stopped=watched_stoppage())
        pace.start()

        def pay_at_tick(when: When, charges: list[Charge], ids: np.ndarray) -> None:
            pace.wait()
            pay(when, charges, ids)

        return pay_at_tick

    def _opened(self, step: Step, algorithm: Algorithm, state: ServerState) -> Remote:
        """Begin the run of a step with the sites of the inspection, as far as they are there."""
        call, agenda = self.call, self.agenda
        plan = InspectionPlan(call.name, agenda.inspection.selections, agenda.noise, call.source, step)
        terms = call.terms(plan, self.roster.clients, dict(agenda.trainer.values))
        link = call.remote(plan)
        members = {name: replace(member, away=True, used=()) for name, member in self.roster.members.items()}
        link.roster = Roster(members)
        link.invite(terms)
        refused = link.begin(terms, algorithm, state)
        if refused and not self._begun:
            raise Declined(refused)
        self._begun = True
        return link

    def _closed(self, link: Remote, state: ServerState) -> None:
        with suppress(FedsynthError):  # what was learned is safe; who does not hear that it is over need not
            link.close(state)
