"""A search over settings on private rows, at a price (Papernot and Steinke 2022).

How many trainings there are is drawn at random (geometric) and told to nobody, each with settings drawn at random, and
only the best leaves. That costs two to three times the epsilon of one training, however many settings there are to
choose from, and it is one line of the ledger. Which is best is judged by a noisy statistic with a line of its own:
the mean of each encoded column for each class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from dp_accounting import DpEvent, GaussianDpEvent
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from torch import Tensor

from fedsynth.assess.tuning.search import Settings
from fedsynth.data.clients import Clients, Padded, RawClients, encode_clients
from fedsynth.data.schema import Schema
from fedsynth.errors import Incompatible
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.loop import ask
from fedsynth.federation.query import Query
from fedsynth.federation.state import ServerState
from fedsynth.privacy import account
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.ledger import Ledger, priced
from fedsynth.privacy.mechanism import Charge, Release, Unit, When
from fedsynth.recipes.budget import adjacency_of, cost
from fedsynth.recipes.registry import Recipe
from fedsynth.recipes.task import Task
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.payer import BudgetPolicy, Payer, ledger_of
from fedsynth.synthesis.release import caveats_of, release, released, write_result
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.training import Prepared, Training, Watch, check_request

GEOMETRIC = 1.0  # the shape of the number of trainings: P(K = k) falls by a constant factor
_STATISTIC = 0.15  # share of epsilon for the statistic that candidates are judged by
_DRAWN = 10_000  # synthetic rows that a candidate is judged by


@dataclass(frozen=True)
class ColumnMeans:
    """The mean of each number of an encoded row, class by class, as a vector of length at most 1.

    A number of a row lies in [0, 1], so a row is at most sqrt(width) long.
    """

    width: int
    classes: int

    def __call__(self, data: Padded) -> Tensor:
        """[clients, classes * width]."""
        own = torch.nn.functional.one_hot(data.y.clamp(min=0), self.classes) * data.mask[..., None]
        rows = data.x.flatten(2).to(torch.float32)
        rows = rows / 255 if data.x.dtype == torch.uint8 else rows.clamp(0, 1)
        sums = own.to(torch.float32).transpose(1, 2) @ rows
        means = sums / data.mask.sum(1).clamp(min=1)[:, None, None]
        return means.flatten(1) / math.sqrt(self.width)


@dataclass(frozen=True)
class ChargedSearch:
    """The best of about `trials` trainings with settings drawn from `tried`, for one epsilon."""

    request: Request
    schema: Schema
    clients: RawClients
    tried: Sequence[Settings]
    trials: float = 5.0

    def __post_init__(self) -> None:
        if not self.trials > 1:
            raise Incompatible(f"trials={self.trials:g}: expected a mean number of trainings above 1")
        if self.request.target is None:
            raise Incompatible("a charged search needs --epsilon and --delta; without privacy use --public")
        if self.request.noise_multiplier is not None:
            raise Incompatible(
                f"noise_multiplier={self.request.noise_multiplier:g}: a charged search finds the noise that it "
                "needs; leave it out"
            )

    def run(self, folder: Path, watch: Watch | None = None) -> Settings:
        """Train, choose, and write the best as a run; the settings that won.

        Everything is paid for before the first training. A search that was interrupted has cost all of it.
        """
        place = Folder(folder)
        place.refuse_existing()
        encoded = encode_clients(self.clients, self.schema)
        rng = Rng(self.request.seed)
        recipe = check_request(self.request, self.schema, encoded)
        participants = encoded.pooled() if recipe.pooled else encoded
        task = self.request.task(self.schema, len(participants))
        earlier = ledger_of(self.schema, self.request.schema)
        spent = [
            priced(line, task.unit, "add-remove") for line in ([] if earlier is None else earlier.lines())
        ]
        noise, statistic = self._calibrated(recipe, task, spent)
        offered = [self._prepared(recipe, task, participants, settings, noise) for settings in self.tried]

        ledger = Ledger(place.ledger)
        policy = BudgetPolicy.load(self.request.budget) if self.request.budget else None
        payer = Payer(ledger, place.path.name, policy)
        if earlier is not None:
            payer.begin_with(earlier)
        payer.pay(When(), [self._charge(offered[0].algorithm, offered[0].unit)], np.empty(0, np.int64))
        truth = self._truth(participants, statistic, offered[0].unit, payer, rng)

        best: tuple[float, Prepared, ServerState] | None = None
        for number in range(self._count(rng)):
            stream = rng.at("trial", number)
            chosen = offered[int(stream.uniforms(1)[0] * len(offered)) % len(offered)]
            state = Training(chosen, None, Payer(Ledger(None), "trial"), stream, watch).start()
            score = -self._distance(chosen, state, truth, stream)
            if best is None or score > best[0]:
                best = (score, chosen, state)
        assert best is not None
        self._write(place, best[1], best[2], ledger)
        return {name: best[1].values[name] for name in self.tried[0]}

    def _values(self, recipe: Recipe) -> Settings:
        """The arguments that all candidates share."""
        values = recipe.values(self.request.arguments)
        rounds = self.request.rounds
        return values if rounds is None else {**values, **recipe.with_role("rounds", rounds)}

    def _calibrated(self, recipe: Recipe, task: Task, spent: Sequence[DpEvent]) -> tuple[float, float]:
        """The noise of each training and of the statistic: all of it and what was `spent` cost what was asked for."""
        target = self.request.target
        assert target is not None
        values = self._values(recipe)
        if not recipe.named("noise") or task.trust != "central":
            raise Incompatible(
                f"{recipe.name} with trust={task.trust}: a charged search needs a trusted server that adds the "
                "noise and keeps what lost to itself; use trust=central, or search on public rows"
            )

        def built(settings: Settings, noise: float) -> Algorithm:
            return recipe.build(task, {**values, **settings, **recipe.with_role("noise", noise)})

        costs = {repr(cost(built(settings, 1.0))) for settings in self.tried}
        if len(costs) > 1:
            raise Incompatible(
                "the candidates would cost different amounts (rounds, rate, cohort or clip shares differ), and a "
                "charged search needs one cost for all; try settings that do not change it, or search on public rows"
            )
        adjacency = adjacency_of(built(self.tried[0], 1.0))
        statistic = account.calibrate(
            GaussianDpEvent, _STATISTIC * target.epsilon, target.delta, adjacency=adjacency
        )

        def whole(noise: float) -> DpEvent:
            search = self._event(cost(built(self.tried[0], noise)))
            return account.compose([*spent, CentralGaussian(Clip(1.0), statistic).release.event, search])

        noise = account.calibrate(whole, target.epsilon, target.delta, adjacency=adjacency)
        return noise, statistic

    def _event(self, one: DpEvent) -> DpEvent:
        return RepeatAndSelectDpEvent(one, self.trials, GEOMETRIC)

    def _charge(self, algorithm: Algorithm, unit: Unit) -> Charge:
        event = self._event(cost(algorithm))
        what = f"the best of about {self.trials:g} trainings over {len(self.tried)} settings"
        return Charge(Release(what, unit, "central", event), event)

    def _prepared(
        self, recipe: Recipe, task: Task, participants: Clients, settings: Settings, noise: float
    ) -> Prepared:
        values = {**self._values(recipe), **settings, **recipe.with_role("noise", noise)}
        return Prepared(recipe, self.schema, participants, recipe.build(task, values), values, self.request)

    def _count(self, rng: Rng) -> int:
        """A geometric number of trainings, at least one, with the stated mean."""
        chance = 1.0 / self.trials
        uniform = max(float(rng.at("how many").uniforms(1)[0]), 1e-300)
        return 1 + int(math.log(uniform) / math.log1p(-chance))

    def _means(self, clients: Clients) -> ColumnMeans:
        return ColumnMeans(clients.width, max(1, len(self.schema.classes)))

    def _truth(self, clients: Clients, noise: float, unit: Unit, payer: Payer, rng: Rng) -> Tensor:
        """The noisy mean of the statistic over all units, up to a factor."""
        means = self._means(clients)
        query = Query(
            "column means to choose settings by",
            means,
            means.width * means.classes,
            CentralGaussian(Clip(1.0), noise),
            len(clients),
            unit,
        )
        device = self.request.device
        return ask(query, InProcess(clients, rng, device=device), ServerState(0, {}), rng, payer.pay)

    def _distance(self, chosen: Prepared, state: ServerState, truth: Tensor, rng: Rng) -> float:
        """How far a candidate's statistic lies from the truth, both scaled to a sum of 1."""
        generator = released(chosen.algorithm, state, self.schema, chosen.recipe.name, chosen.values)
        drawn = generator.sample(_DRAWN, rng.at("judged"))
        rows = encode_clients(RawClients(np.zeros(_DRAWN, np.int64), 1, (), drawn), self.schema)
        own = self._means(rows)(rows.gather(np.zeros(1, np.int64), "cpu"))[0]
        noisy = truth.to(torch.float32).clamp(min=0)
        return float((own / own.sum().clamp(min=1e-12) - noisy / noisy.sum().clamp(min=1e-12)).abs().sum())

    def _write(self, place: Folder, chosen: Prepared, state: ServerState, ledger: Ledger) -> None:
        """The winner as a finished run; nothing of the others is kept."""
        how_chosen = (
            f"The settings were chosen by a charged search over {len(self.tried)} candidates; how many trainings it "
            "took was drawn at random and is not told, and nothing of those that lost is released.",
        )
        generator, statement = release(
            chosen,
            ledger,
            state,
            seeded=self.request.seed is not None,
            caveats=(*how_chosen, *caveats_of(chosen)),
        )
        place.create(replace(self.request, arguments=chosen.values).to_toml(), self.schema)
        write_result(place, generator, statement)
