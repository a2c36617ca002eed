"""The clients of an inspection, wherever they are: they can be asked, and models can be trained on what they select."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedsynth.data.clients import Clients
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.link import Link
from fedsynth.federation.loop import Pay, Round, ask, learn_balance, run
from fedsynth.federation.query import Query
from fedsynth.federation.state import ServerState
from fedsynth.inspection.step import InspectedRows, InspectionQuestion, SelectionTraining
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess


class Population(Protocol):
    """All clients; `pay` is called before anything that they sent is opened."""

    def ask(self, question: InspectionQuestion, query: Query, rng: Rng, pay: Pay) -> np.ndarray:
        """The noisy sum of all answers."""

    def train(self, step: SelectionTraining, algorithm: Algorithm, rng: Rng, pay: Pay) -> ServerState:
        """The state after the last round."""


@dataclass(frozen=True)
class Simulated:
    """Clients in this process."""

    rows: InspectedRows
    device: str = "cpu"

    def ask(self, question: InspectionQuestion, query: Query, rng: Rng, pay: Pay) -> np.ndarray:
        """Ask all of them."""
        link = InProcess(question.clients(self.rows), rng)
        return ask(query, link, ServerState(0, {}), rng, pay).numpy()

    def train(self, step: SelectionTraining, algorithm: Algorithm, rng: Rng, pay: Pay) -> ServerState:
        """Train on what they select."""
        return train_on(step.clients(self.rows), algorithm, rng, pay, self.device)


def train_on(clients: Clients, algorithm: Algorithm, rng: Rng, pay: Pay, device: str = "cpu") -> ServerState:
    """Train on all rows of clients in this process."""
    link = InProcess(clients, rng, device=device)
    return learned(algorithm, link, algorithm.init(rng.at("init")), rng, pay)


def learned(algorithm: Algorithm, link: Link, state: ServerState, rng: Rng, pay: Pay) -> ServerState:
    """The state after the last round, over any link."""
    state = learn_balance(algorithm, link, state, rng, pay)
    return run(algorithm, link, state, rng, pay, _unseen, algorithm.rounds)


def _unseen(state: ServerState, done: Round) -> None:
    """The curve of a selection's loss is not shown: it is a sum over clients of whom an unknown share has one."""
