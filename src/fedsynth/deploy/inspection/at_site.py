"""A site's part in an inspection: it judges its own rows, by rules and models that it checked, and counts the cost.

The plan that came says what is looked for. What it costs follows from the objects that are composed here, and the
model's answers are used here only: what leaves is a clipped sum over the site's clients, like in any run.
"""

from __future__ import annotations

from dataclasses import replace

from fedsynth.data.clients import Clients
from fedsynth.data.schema import Schema
from fedsynth.deploy.link.messages import Begin, Terms
from fedsynth.deploy.participation import compose
from fedsynth.deploy.site.look import Assigned
from fedsynth.deploy.site.site import Holding, SitePolicy
from fedsynth.errors import BadInput, FedsynthError, Incompatible
from fedsynth.federation.algorithm import Algorithm
from fedsynth.inspection.auxiliary import lenient
from fedsynth.inspection.onnx_graph import MOST_BYTES, check_installed
from fedsynth.inspection.plan import InspectionPlan, ModelSource, hash_of
from fedsynth.inspection.primary import Primary, check_entry_point, graph_from, installed
from fedsynth.inspection.selection import trained_schema
from fedsynth.inspection.step import InspectedRows, SelectionTraining, Step
from fedsynth.inspection.survey import InspectionSurvey
from fedsynth.privacy.mechanism import Charge


class AtSite:
    """This site's part in the steps of inspections; rows that were judged once are kept for the next step."""

    def __init__(self, holding: Holding, policy: SitePolicy) -> None:
        self._holding = holding
        self._policy = policy
        self._last: tuple[tuple[ModelSource, bool], InspectedRows] | None = None

    def agree(self, terms: Terms) -> None:
        """Refuse what cannot be done here, or would not be private."""
        plan = InspectionPlan.from_dict(terms.inspection)
        if (terms.unit, terms.trust, terms.transport) != ("client", "central", "clear"):
            raise Incompatible(
                f"unit={terms.unit}, trust={terms.trust}, transport={terms.transport}: which rows of a client are "
                "selected depends on its other rows, so an inspection protects whole clients, by noise at the server"
            )
        if terms.private and plan.noise is None:
            raise BadInput("inspection: a private one asks its questions with noise; this one has none")
        if self._holding.raw is None:
            raise BadInput(
                "the rows of this site were not kept as they were read, so they cannot be inspected"
            )
        if plan.source.entry_point:
            self._check_entry_point(plan.source.entry_point)
        if plan.source.onnx:
            check_installed()

    def _check_entry_point(self, name: str) -> None:
        allowed = self._policy.entry_points
        if name not in allowed:
            raise BadInput(
                f"entry_point={name!r}: not allowed here; allowed: {', '.join(allowed) or 'none'} "
                "(entry_points under [policy] in site.toml)"
            )
        check_entry_point(name)

    def allows(self, terms: Terms, job: str) -> bool:
        """Rounds belong to models; a question is the one query of its run."""
        return (
            InspectionPlan.from_dict(terms.inspection).step.kind == SelectionTraining.kind or job == "balance"
        )

    def assigned(self, begin: Begin) -> Assigned:
        """One step: the same objects as in the simulator, on this site's clients."""
        plan = InspectionPlan.from_dict(begin.terms.inspection)
        if begin.run != plan.run:
            raise BadInput(f"run {begin.run!r}: this step of the inspection is the run {plan.run!r}")
        schema, clients = self._holding.schema, begin.terms.clients
        trained = trained_schema(schema, plan.selections)
        model = lenient(compose(begin.terms, trained))
        query = plan.step.query(schema, clients, plan.noise)
        algorithm = model if query is None else replace(model, opening=query)
        rows = self._rows(plan, trained, begin.blob)
        return Assigned(
            algorithm,
            lambda: _clients(plan.step, rows),
            plan.step.stream,
            plan.name,
            tuple(whole(plan, model, schema, clients)),
        )

    def _rows(self, plan: InspectionPlan, trained: Schema, content: bytes) -> InspectedRows:
        """This site's rows with the model of the plan, which is read and checked first."""
        key = (plan.source, trained.label is None)
        if self._last is None or self._last[0] != key:
            raw = self._holding.raw
            assert raw is not None
            model = self._model(plan.source, content)
            self._last = (key, InspectedRows(raw, self._holding.schema, trained, model))
        return self._last[1]

    def _model(self, source: ModelSource, content: bytes) -> Primary | None:
        schema = self._holding.schema
        if source.entry_point:
            self._check_entry_point(source.entry_point)
            return installed(schema, source.entry_point)
        if not source.onnx:
            return None
        if len(content) > MOST_BYTES:
            raise BadInput(f"the model has {len(content)} bytes; at most {MOST_BYTES} are accepted here")
        if hash_of(content) != source.onnx:
            raise BadInput("the model that came is not the one that the inspection names (another SHA-256)")
        return graph_from(schema, content, "the model that came")


def _clients(step: Step, rows: InspectedRows) -> Clients:
    """Return the clients of a step; an unforeseen error could quote a row, so only its kind is told."""
    try:
        return step.clients(rows)
    except FedsynthError:
        raise
    except Exception as error:
        raise BadInput(
            f"a selection cannot be evaluated on the rows of this site ({type(error).__name__})"
        ) from error


def whole(plan: InspectionPlan, model: Algorithm, schema: Schema, clients: int) -> list[tuple[Charge, int]]:
    """Return every charge of the inspection's questions and models, with its number of times."""
    queries = [
        question.query(schema, clients, plan.noise) for question in InspectionSurvey.of(plan.selections).all
    ]
    once = [] if model.opening is None else model.opening.charges()
    models = len(plan.selections)
    return [
        *((charge, 1) for query in queries for charge in query.charges()),
        *((charge, models) for charge in once),
        *((charge, models * model.rounds) for charge in model.charges()),
    ]
