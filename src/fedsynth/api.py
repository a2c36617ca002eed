"""The functions beside the Synthesizer: plan, evaluate, report, audit. The commands of these names call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsynth.assess import suite
from fedsynth.assess.attacks.shadow_game import MINUTES
from fedsynth.assess.audit.audit import USUAL_CANARIES, USUAL_CONFIDENCE, Audit
from fedsynth.assess.audit.audit_setup import Setup, write_audit
from fedsynth.assess.inputs import check_rows, check_tables, owned, read_judged
from fedsynth.assess.origin import Origin, origin_of
from fedsynth.assess.report.internal import NAME, write_report
from fedsynth.assess.report.public import write_public
from fedsynth.assess.report.record import Released, RunRecord
from fedsynth.assess.scores.networks import network_named
from fedsynth.assess.scores.score import failure
from fedsynth.assess.suite import DETAILS, SCORES, Evaluation, Progress
from fedsynth.data.modality import Data, modality_of
from fedsynth.data.notebook import card
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, nearest, speaks_python
from fedsynth.recipes.budget import Target
from fedsynth.recipes.planned import PlanPopulation
from fedsynth.recipes.plans import Plans, make_plans
from fedsynth.recipes.plans import Progress as PlanProgress
from fedsynth.recipes.registry import all_recipes
from fedsynth.rng import Rng
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.released_files import write_released
from fedsynth.synthesis.request import DELTA, ROWS
from fedsynth.synthesis.synthesizer import Synthesizer

if TYPE_CHECKING:
    from fedsynth.assess.audit.canary import Tell


@speaks_python
def plan(
    schema: Schema | Path | str,
    *,
    clients: int,
    records: int,
    epsilon: float,
    delta: float = DELTA,
    recipe: str | None = None,
    unit: str | None = None,
    trust: str | None = None,
    project: Sequence[int] = (),
    progress: PlanProgress | None = None,
) -> Plans:
    """Say what privacy would cost before any data are read; `print(plan(...))` is the table, `.runs` its lines.

    Each recipe that fits the schema is composed and calibrated as it would run; `recipe` names one, or "auto" for the
    one that a run would take. `project` are other numbers of clients to see the cost for.
    """
    public = Schema.load(schema) if isinstance(schema, Path | str) else schema
    people = PlanPopulation(clients, records, epsilon, delta)
    return make_plans(public, people, recipe, unit, trust, project, progress)


@speaks_python
def evaluate(
    real: Data,
    synthetic: Data,
    schema: Schema | Path | str,
    *,
    test: Data | None = None,
    client_column: str | None = None,
    run: Path | str | None = None,
    privacy: Path | str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    deep: bool = False,
    shadow_minutes: float | None = None,
    network: str = "lenet",
    classifiers: Sequence[str] = (),
    text_column: str = "text",
    seed: int = 0,
    cache: Path | str | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Measure how faithful and useful synthetic data are; `evaluate(...)["column shapes"].value` is one score.

    Data are a DataFrame (or images, or texts), or the path of a file. `test` are real rows that the generator never
    saw: with them, and with the run's folder (`run`) or its claim (`epsilon` and `delta`), the data are attacked too.
    The result is made from real rows: keep it internal.
    """
    known = Schema.load(schema) if isinstance(schema, Path | str) else schema
    judged = {"real": real, "test": test, "synthetic": synthetic}
    named = {
        name: f"--{name} {data}" if isinstance(data, Path | str) else name for name, data in judged.items()
    }
    read = {
        name: _judged(data, known, text_column, ours=name != "synthetic") for name, data in judged.items()
    }
    known = owned(known, client_column, {named[name]: read[name] for name in ("real", "test")})
    paths = {name: named[name].partition(" ")[2] or name for name in read}
    check_tables({paths[name]: read[name] for name in read}, known)
    check_rows({paths[name]: read[name] for name in ("real", "test")}, known)
    minutes = MINUTES if shadow_minutes is None else shadow_minutes
    origin = origin_of(run, privacy, epsilon, delta, read["real"], seed, minutes)
    return suite.evaluate(
        read["real"],
        read["synthetic"],
        known,
        test=read["test"],
        deep=deep,
        seed=seed,
        progress=progress,
        cache=cache,
        network=network_named(network) if known.channels else None,
        classifiers=tuple(classifiers),
        **vars(origin),
    )


def _judged(data: Data | None, schema: Schema, text_column: str | None = None, *, ours: bool = False) -> Data:
    if data is None or isinstance(data, Path | str):
        return None if data is None else read_judged(Path(data), schema, text_column, ours=ours)
    modality = modality_of(schema)
    plain = modality.plain(data)
    return modality.conform(plain) if ours else plain


@dataclass(frozen=True)
class ReportPages:
    """The two pages of a run: `internal` is made from real rows where there were any, `public` may be published."""

    internal: Path
    public: Path
    evaluation: Evaluation | None
    private: bool

    def _repr_html_(self) -> str:
        fate = "may be published" if self.private else "do not publish: no complete promise"
        return card("Report", {"internal: do not publish": str(self.internal), fate: str(self.public)})


@speaks_python
def report(
    run: Path | str,
    real: Data | None = None,
    test: Data | None = None,
    *,
    client_column: str | None = None,
    deep: bool = False,
    shadow_minutes: float | None = None,
    network: str = "lenet",
    progress: Progress | None = None,
    note: Callable[[str], None] | None = None,
) -> ReportPages:
    """Write report.html and public.html into the folder of a finished run.

    With `real` (rows, or the path of their file) the synthetic rows are measured against the real ones; without it,
    scores that were measured before are shown. `note` is called with the reason if nothing could be measured.
    """
    folder = Path(run)
    if test is not None and real is None:
        raise BadInput("--test needs --real as well: the rows that the run was trained on")
    released = Released.read(folder)
    real_rows, evaluation = None, _earlier(folder)
    if real is not None:
        real_rows, test_rows = (_judged(data, released.schema, ours=True) for data in (real, test))
        released = _with_synthetic(folder, released)
        tables = {"the real table": real_rows, "the test table": test_rows}
        check_rows(tables, released.schema)
        schema = owned(released.schema, client_column, tables)
        minutes = MINUTES if shadow_minutes is None else shadow_minutes
        how = vars(Origin.of_run(folder, real_rows, minutes=minutes)) | {"test": test_rows, "deep": deep}
        how["network"] = network_named(network) if schema.channels else None
        evaluation = _measured(folder, real_rows, released.synthetic, schema, progress, note, **how)
    public = write_public(folder, released)
    write_report(RunRecord.read(folder, evaluation, real_rows, released), folder / NAME)
    return ReportPages(folder / NAME, public, evaluation, released.statement.private)


def _with_synthetic(folder: Path, released: Released) -> Released:
    """Return what was released, with synthetic data that are drawn now where there are none yet."""
    if released.synthetic is not None:
        return released
    loaded = Synthesizer.load(folder)
    drawn = loaded.sample(loaded.request.rows or ROWS, seed=loaded.request.seed)
    write_released(drawn, Folder(folder), loaded.schema)
    return Released.read(folder)


def _measured(
    folder: Path,
    real: Data,
    synthetic: Data,
    schema: Schema,
    progress: Progress | None,
    note: Callable[[str], None] | None,
    **how: Any,
) -> Evaluation:
    """Measure the run's synthetic data and keep the scores in its folder."""
    try:
        evaluation = suite.evaluate(real, synthetic, schema, progress=progress, cache=folder / "cache", **how)
    except BadInput as error:
        if schema.feature_columns:
            raise
        if note:
            note(f"not measured: {error}")
        return Evaluation((failure("faithfulness", str(error)),), {})
    evaluation.save(folder)
    return evaluation


def _earlier(folder: Path) -> Evaluation | None:
    """The scores that were measured before, if any."""
    known = (folder / SCORES).is_file() or (folder / DETAILS).is_file()
    return Evaluation.load(folder) if known else None


@speaks_python
def audit(
    what: Path | str,
    *,
    unit: str | None = None,
    trust: str | None = None,
    epsilon: float = 8.0,
    delta: float = 1e-5,
    rounds: int | None = None,
    schema: Schema | Path | str | None = None,
    arguments: Mapping[str, Any] | None = None,
    canaries: int = USUAL_CANARIES,
    runs: int = 1,
    confidence: float = USUAL_CONFIDENCE,
    seed: int | None = None,
    tell: Tell | None = None,
) -> Audit:
    """Attack the settings of a run (its folder), or a recipe by name, on made-up rows.

    Returns lower bounds on epsilon beside the claim; `exceeds` is true if more leaks than is claimed. For a run the
    result goes into its privacy.json. `epsilon`, `delta`, `rounds`, `schema` and `arguments` are for a recipe.
    """
    folder = _run_folder(str(what))
    if folder:
        setup = Setup.of_run(folder)
        setup.check_claim(unit, trust)
    else:
        public = Schema.load(schema) if isinstance(schema, Path | str) else schema
        target = Target(epsilon, delta, rounds)
        setup = Setup.of_recipe(str(what), target, dict(arguments or {}), public, unit=unit, trust=trust)
    result = setup.run(canaries, runs, confidence, None if seed is None else Rng(seed), tell)
    if folder:
        write_audit(folder, result)
    return result


def _run_folder(what: str) -> Path | None:
    """The run's folder; None if a recipe is named."""
    folder = Path(what)
    if what in all_recipes() and not Folder(folder).recipe.exists():
        return None
    if not folder.is_dir():
        raise BadInput(
            f"{what}: no such run, and no such recipe; {nearest(what, all_recipes())}, or the folder of a finished run"
        )
    return folder
