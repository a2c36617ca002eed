"""The questions and models of an inspection with their noise: what will be asked of the clients, in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dp_accounting import DpEvent

from fedsynth.federation.loop import Pay
from fedsynth.inspection.auxiliary import Trainer
from fedsynth.inspection.population import Population
from fedsynth.inspection.released import ReleasedAnswers, Taken
from fedsynth.inspection.request import Inspection
from fedsynth.inspection.step import SelectionTraining
from fedsynth.inspection.survey import InspectionSurvey
from fedsynth.privacy import account
from fedsynth.recipes.budget import cost
from fedsynth.rng import Rng

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Agenda:
    """All models have the same noise, so that they and the questions cost what was asked for together."""

    inspection: Inspection
    trainer: Trainer
    survey: InspectionSurvey
    noise: float | None  # of each question

    @classmethod
    def of(cls, inspection: Inspection, clients: int, spent: Sequence[DpEvent] = ()) -> Agenda:
        """Calibrated for so many clients, who have paid for `spent` already."""
        survey, target = InspectionSurvey.of(inspection.selections), inspection.request.target
        noise = survey.noise(inspection.survey_share * target.epsilon, target.delta) if target else None
        trainer = Trainer.of(inspection.request, inspection.trained, clients)
        trainer = trainer.calibrated(target, len(inspection.selections), [*spent, *survey.events(noise)])
        return cls(inspection, trainer, survey, noise)

    @property
    def event(self) -> DpEvent:
        """The cost of all questions and models together."""
        models = account.repeat(cost(self.trainer.algorithm(1.0)), len(self.inspection.selections))
        return account.compose([*self.survey.events(self.noise), models])

    def look(
        self, population: Population, rng: Rng, pay: Pay, tell: Tell, *, seeded: bool = False
    ) -> ReleasedAnswers:
        """Ask, then train a model for each selection; `seeded` if the clients' noise can be drawn again."""
        clients = self.trainer.task.clients
        tell("asking the clients")
        settled, spreads = self.survey.conduct(
            population, self.inspection.schema, clients, self.noise, rng, pay
        )
        models = {}
        for place, (name, chosen) in enumerate(settled.items()):
            tell(f"training on {name!r}")
            algorithm = self.trainer.algorithm(chosen.share.guess)
            step = SelectionTraining(name, (chosen.selection,), place)
            state = population.train(step, algorithm, rng.at(*step.stream), pay)
            generator = self.trainer.generator(algorithm, state)
            models[name] = Taken(chosen.selection.words, chosen.share, generator)
        return ReleasedAnswers(self.trainer, models, spreads, seeded or rng.reproducible)
