"""One inspection from questions to findings: survey, train a model for each selection, contrast, judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedsynth.data.atomic import write_file
from fedsynth.data.clients import RawClients, require_several
from fedsynth.errors import BudgetExhausted
from fedsynth.inspection.agenda import Agenda, Tell
from fedsynth.inspection.contrast import differences
from fedsynth.inspection.findings import Findings, SelectionModel
from fedsynth.inspection.population import Simulated
from fedsynth.inspection.previous import ROOT, Earlier
from fedsynth.inspection.released import ReleasedAnswers
from fedsynth.inspection.request import Inspection
from fedsynth.inspection.sample import Sample
from fedsynth.inspection.step import InspectedRows
from fedsynth.inspection.verdict import Finding, Null, judge, needed
from fedsynth.privacy.budget import Budget
from fedsynth.privacy.ledger import Ledger, priced
from fedsynth.privacy.statement import Statement, statement
from fedsynth.recipes.budget import adjacency_of, sampling_of
from fedsynth.rng import Rng
from fedsynth.synthesis.payer import BudgetPolicy, Payer, ledger_of
from fedsynth.synthesis.training import check_claim

_CAVEATS = (
    "How many clients met a selection was revealed as a noisy number, whose cost is part of the sum; the exact number "
    "was not revealed.",
    "The model and the rules that decide who is selected are public; so are their thresholds, unless the ledger "
    "shows that they were asked for.",
)


def inspect(
    inspection: Inspection,
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
    check_claim(inspection.request, inspection.schema, "client", len(raw))
    earlier = None if against is None else Earlier.read(against)
    rng = Rng(inspection.request.seed)
    rows = InspectedRows(raw, inspection.schema, inspection.trained, inspection.model)
    assert len(rows.encoded) == len(raw)  # a row that does not fit is told before anything is paid for
    tell("evaluating the selections at the clients")
    for selection in inspection.selections.values():
        rows.marks(selection.criterion)
    schema = _schema(inspection, earlier)
    spent = [priced(line, "client", "add-remove") for line in ([] if schema is None else schema.lines())]
    agenda = Agenda.of(inspection, len(raw), spent)
    payer = _payer(inspection, agenda, out, earlier, schema)
    released = agenda.look(Simulated(rows, inspection.request.device), rng, payer.pay, tell)
    return conclude(inspection, released, payer.ledger, out=out, earlier=earlier, tell=tell)


def conclude(
    inspection: Inspection,
    released: ReleasedAnswers,
    ledger: Ledger,
    *,
    out: Path | None = None,
    earlier: Earlier | None = None,
    tell: Tell = lambda _: None,
    caveats: Sequence[str] = (),
) -> Findings:
    """Draw examples, find out what noise alone would show, and judge: from what was released, so at no further cost."""
    rng = Rng(inspection.request.seed)
    models: dict[str, SelectionModel] = {}
    for name, taken in released.models.items():
        sample = Sample.draw(taken.generator, inspection.shown, rng.at("sample", name))
        models[name] = SelectionModel(taken.words, taken.generator, sample, taken.share)
    null: Null = ()
    if inspection.simulation.models and (len(models) == 2 or earlier is not None):  # something to judge
        tell("simulating what noise alone would show")
        samples, shares = zip(*[(model.sample, model.share) for model in models.values()], strict=True)
        null = inspection.simulation.no_difference(released.trainer, samples, shares, rng.at("null"))
    compared = _since(inspection, models, earlier, null)
    contrast = _contrast(inspection, list(models.values()), null)
    judged = [*contrast, *(finding for model in compared.values() for finding in model.change)]
    findings = Findings(
        released.trainer.schema,
        inspection.schema,
        {"recipe": inspection.request.recipe, **released.trainer.values},
        _statement(inspection, released, ledger, caveats),
        compared,
        contrast,
        null,
        released.spreads,
        needed(judged, null, inspection.simulation.models, inspection.tolerance),
    )
    if out is not None:
        findings.save(out)
    return findings


def _schema(inspection: Inspection, earlier: Earlier | None) -> Ledger | None:
    """Return the ledger of the schema; inspections that go on from an earlier one find it in that one's ledger."""
    if earlier is not None or not inspection.request.private:
        return None
    return ledger_of(inspection.schema, inspection.request.schema)


def _payer(
    inspection: Inspection, agenda: Agenda, out: Path | None, earlier: Earlier | None, schema: Ledger | None
) -> Payer:
    """Who pays: this inspection's ledger, which goes on from the first one's, and that one for all of them.

    Nothing is asked or trained if all of it does not fit what is left.
    """
    first = Ledger(None if earlier is None else earlier.root)
    policy = (
        _policy(inspection, agenda, first, schema)
        if inspection.total is not None or earlier is not None
        else None
    )
    ledger = Ledger(None)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        ledger = Ledger(out / "ledger.jsonl")
        root = earlier.root if earlier is not None else out / "ledger.jsonl"
        write_file(out / ROOT, str(root.resolve()) + "\n")
    payer = Payer(ledger, "inspection" if out is None else out.name, policy)
    if schema is not None:
        payer.begin_with(schema)
    elif first.lines():
        ledger.adopt(first)
    return payer


def _policy(
    inspection: Inspection, agenda: Agenda, first: Ledger, schema: Ledger | None
) -> BudgetPolicy | None:
    """The budget of all inspections on the first one's ledger; none where nothing is promised."""
    target = inspection.request.target
    if target is None:
        return None
    adjacency = adjacency_of(agenda.trainer.algorithm(1.0))
    policy = BudgetPolicy(Budget(inspection.total or float("inf"), target.delta, adjacency=adjacency), first)
    if schema is not None:
        policy.count(schema)
    try:
        policy.budget.check(first, agenda.event, what="this inspection")
    except BudgetExhausted as error:
        raise BudgetExhausted(f"{error}. Earlier inspections of these data count") from None
    return policy


def _since(
    inspection: Inspection, models: Mapping[str, SelectionModel], earlier: Earlier | None, null: Null
) -> dict[str, SelectionModel]:
    """Each model with what it looked like before, and whether that is another thing."""
    compared = {}
    for name, model in models.items():
        before = None if earlier is None else earlier.sample(name)
        change = {} if before is None else differences(model.sample, before)
        change_findings = judge(change, null, inspection.simulation.models, inspection.tolerance)
        compared[name] = replace(model, before=before, change=change_findings)
    return compared


def _contrast(inspection: Inspection, models: Sequence[SelectionModel], null: Null) -> tuple[Finding, ...]:
    """Compare the two selections; nothing if there is only one."""
    apart = differences(models[0].sample, models[1].sample) if len(models) == 2 else {}
    return judge(apart, null, inspection.simulation.models, inspection.tolerance)


def _statement(
    inspection: Inspection, released: ReleasedAnswers, ledger: Ledger, caveats: Sequence[str]
) -> Statement:
    """On everything that the ledger holds: questions, models, and what earlier inspections released."""
    algorithm = released.trainer.algorithm(1.0)
    return statement(
        ledger,
        delta=inspection.request.delta or 0.0,
        adjacency=adjacency_of(algorithm),
        sampling=sampling_of(algorithm),
        unit="client",
        seeded=released.seeded,
        inferred=inspection.trained.inferred(),
        caveats=(*algorithm.caveats, *_CAVEATS, *caveats),
        units=released.trainer.task.clients,
    )
