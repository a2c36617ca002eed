"""One inspection from questions to findings: survey, train a model for each selection, contrast, judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dp_accounting import DpEvent

from fedsynth.data.clients import RawClients, encode_clients, require_several
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, BudgetExhausted
from fedsynth.inspect.auxiliary import Trainer
from fedsynth.inspect.contrast import differences
from fedsynth.inspect.earlier import ROOT, Earlier
from fedsynth.inspect.findings import Findings, Model
from fedsynth.inspect.primary import Primary
from fedsynth.inspect.sample import Sample
from fedsynth.inspect.selection import Selection, select
from fedsynth.inspect.survey import Survey
from fedsynth.inspect.unlabelled import strip_labels, without_label
from fedsynth.inspect.verdict import TOLERANCE, Finding, Null, Simulation, judge
from fedsynth.privacy import account
from fedsynth.privacy.budget import Budget
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.statement import Statement, statement
from fedsynth.recipes.budget import adjacency_of, cost, sampling_of
from fedsynth.rng import Rng
from fedsynth.synthesis.purse import Policy, Purse, ledger_of
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.training import check_claim

Tell = Callable[[str], None]
_CAVEATS = (
    "How many participants met a selection was not revealed, beyond what its synthetic examples show.",
    "The model and the rules that decide who is selected are public; so are their thresholds, unless the ledger "
    "shows that they were asked for.",
)


@dataclass(frozen=True)
class Inspection:
    """What is to be looked at, and what it may cost."""

    request: Request
    schema: Schema
    selections: Mapping[str, Selection]
    model: Primary | None = None
    simulation: Simulation = field(default_factory=Simulation)
    tolerance: float = TOLERANCE
    survey_share: float = 0.2  # of epsilon, for all questions together
    shown: int = 2000
    total: float | None = None  # the most that all inspections on the ledger may cost

    def __post_init__(self) -> None:
        if not 1 <= len(self.selections) <= 2:
            raise BadInput(
                f"{len(self.selections)} selections: expected one to look at, or two to contrast, as [select.NAME]"
            )
        for name, value in (("survey_share", self.survey_share), ("tolerance", self.tolerance)):
            if not 0 < value < 1:
                raise BadInput(f"{name}={value}: expected a number between 0 and 1")
        if self.shown < 1:
            raise BadInput(f"shown={self.shown}: expected at least 1 synthetic example")

    @property
    def trained(self) -> Schema:
        """The schema that models are trained with: without the label if a selection has none."""
        unlabelled = any(selection.unlabelled for selection in self.selections.values())
        return without_label(self.schema) if unlabelled else self.schema


def inspect(
    asked: Inspection,
    raw: RawClients,
    *,
    out: Path | None = None,
    against: Path | None = None,
    tell: Tell = lambda _: None,
) -> Findings:
    """Carry an inspection out; with `out` everything that may be known is written there.

    `against` is the folder of an earlier inspection of the same data: what it spent is counted, and what changed is
    shown. A selection that nobody meets costs as much as any other and ends in a model of noise.
    """
    require_several(raw)
    check_claim(asked.request, asked.schema, "client", len(raw))
    earlier = None if against is None else Earlier.read(against)
    rng = Rng(asked.request.seed)
    schema = asked.trained
    held = raw if schema is asked.schema else strip_labels(raw, asked.schema.label)
    encoded = encode_clients(
        held, schema
    )  # all rows: what is wrong with one must not depend on the selection
    trainer = Trainer.of(asked.request, schema, len(raw))
    tell("evaluating the selections at the clients")
    survey = Survey.of(asked.selections, raw, asked.schema, asked.model)
    target = asked.request.target
    noise = survey.noise(asked.survey_share * target.epsilon, target.delta) if target else None
    before = _before(asked, earlier)
    spent = [] if earlier is not None else [line.cost for line in before.lines()]
    trainer = trainer.calibrated(target, len(asked.selections), [*spent, *survey.events(noise)])
    purse = _purse(asked, trainer, survey.events(noise), out, earlier, before)
    settled, spreads = survey.conduct(noise, rng.at("survey"), purse.pay)
    models: dict[str, Model] = {}
    for name, chosen in settled.items():
        tell(f"training on {name!r}")
        clients = select(raw, encoded, chosen.selection, chosen.marks)
        generator = trainer.train(clients, chosen.share.guess, rng.at("model", name), purse.pay)
        sample = Sample.draw(generator, asked.shown, rng.at("sample", name))
        models[name] = Model(chosen.selection.words, generator, sample, chosen.share)
    shares = [model.share for model in models.values()]
    null: Null = ()
    if asked.simulation.models:
        tell("simulating what noise alone would show")
        null = asked.simulation.no_difference(
            trainer, [model.sample for model in models.values()], shares, rng.at("null")
        )
    findings = Findings(
        schema,
        asked.schema,
        {"recipe": asked.request.recipe, **trainer.values},
        _statement(asked, trainer, purse.ledger),
        _since(asked, models, earlier, null),
        _contrast(asked, list(models.values()), null),
        null,
        spreads,
    )
    if out is not None:
        findings.save(out)
    return findings


def _before(asked: Inspection, earlier: Earlier | None) -> Ledger:
    """What these data have paid for already: all that the first inspection's ledger holds, or else the schema."""
    if earlier is not None:
        return Ledger(earlier.root)
    fresh = Ledger(None)
    schema = ledger_of(asked.schema, asked.request.schema) if asked.request.private else None
    if schema is not None:
        fresh.adopt(schema)
    return fresh


def _purse(
    asked: Inspection,
    trainer: Trainer,
    paid: Sequence[DpEvent],
    out: Path | None,
    earlier: Earlier | None,
    first: Ledger,
) -> Purse:
    """Who pays: this inspection's ledger, which goes on from the first one's, and that one for all of them.

    Nothing is asked or trained if all of it does not fit what is left.
    """
    target, policy = asked.request.target, None
    if target is not None and (asked.total is not None or earlier is not None):
        adjacency = adjacency_of(trainer.algorithm(1.0))
        policy = Policy(Budget(asked.total or float("inf"), target.delta, adjacency=adjacency), first)
        together = account.repeat(cost(trainer.algorithm(1.0)), len(asked.selections))
        try:
            policy.budget.check(first, account.compose([*paid, together]), what="this inspection")
        except BudgetExhausted as error:
            raise BudgetExhausted(f"{error}. Earlier inspections of these data count") from None
    ledger = Ledger(None)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        ledger = Ledger(out / "ledger.jsonl")
        root = earlier.root if earlier is not None else out / "ledger.jsonl"
        (out / ROOT).write_text(str(root.resolve()) + "\n")
    if first.lines():
        ledger.adopt(first)
    return Purse(ledger, "inspection" if out is None else out.name, policy)


def _since(
    asked: Inspection, models: Mapping[str, Model], earlier: Earlier | None, null: Null
) -> dict[str, Model]:
    """Each model with what it looked like before, and whether that is another thing."""
    seen = {}
    for name, model in models.items():
        before = None if earlier is None else earlier.sample(name)
        change = {} if before is None else differences(model.sample, before)
        found = judge(change, null, asked.simulation.models, asked.tolerance)
        seen[name] = replace(model, before=before, change=found)
    return seen


def _contrast(asked: Inspection, models: Sequence[Model], null: Null) -> tuple[Finding, ...]:
    """The two selections held against each other; nothing if there is one alone."""
    apart = differences(models[0].sample, models[1].sample) if len(models) == 2 else {}
    return judge(apart, null, asked.simulation.models, asked.tolerance)


def _statement(asked: Inspection, trainer: Trainer, ledger: Ledger) -> Statement:
    """On everything that the ledger holds: questions, models, and what earlier inspections released."""
    algorithm = trainer.algorithm(1.0)
    return statement(
        ledger,
        delta=asked.request.delta or 0.0,
        adjacency=adjacency_of(algorithm),
        sampling=sampling_of(algorithm),
        unit="client",
        seeded=asked.request.seed is not None,
        inferred=asked.trained.inferred(),
        caveats=(*algorithm.caveats, *_CAVEATS),
    )
