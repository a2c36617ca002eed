"""A site believes nothing: what it does not allow, cannot do, or was not agreed to, it refuses with the reason."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from bars import SCHEMA, asked, bars
from sites_with_bars import allowing, call_to, classifier, sites_of

from fedsynth.deploy.inspection.over_sites import AtSites, Call
from fedsynth.deploy.link.patience import TooFewSites
from fedsynth.inspection import onnx_graph
from fedsynth.inspection.agenda import Agenda
from fedsynth.inspection.step import MEETING, InspectionQuestion, SelectionTraining
from fedsynth.rng import Rng

pytest.importorskip("onnx", reason="ONNX files are made by onnx")
pytest.importorskip("onnxruntime", reason="ONNX files are run by onnxruntime (extra inspect)")
pytestmark = pytest.mark.recipe
WRONG = asked({"by": "example", "criterion": "misclassified"}, None, model=None, models=0, epsilon=12.0)


def free(*_):
    pass


@cache
def calibrated(clients):
    """Calibration takes seconds, and all tests here look for the same."""
    return Agenda.of(WRONG, clients)


def begun(sites, **more):
    """The population of an inspection before its first step."""
    call = call_to(sites, WRONG, **more)
    roster = call.gather()
    return AtSites(call, calibrated(roster.clients), roster)


def first_question(people):
    question = people.agenda.survey.all[0]
    query = question.query(SCHEMA, people.roster.clients, people.agenda.noise)
    return people.ask(question, query, Rng(1), free)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package with a model that fails at clients whose first image is bright, as an installer would leave it."""
    folder = tmp_path / "installed"
    (folder / "triage-1.0.dist-info").mkdir(parents=True)
    (folder / "triage-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: triage\nVersion: 1.0\n"
    )
    points = "[fedsynth.primary]\ntriage = triage_model:scores\n"
    (folder / "triage-1.0.dist-info" / "entry_points.txt").write_text(points)
    (folder / "triage_model.py").write_text(
        "import numpy as np\n"
        "def scores(images):\n"
        "    if images[0].mean() > 128:\n"
        "        raise RuntimeError(f'patient {images[0]}')\n"
        "    return np.stack([images[:, :, :4].mean((1, 2)), images[:, :, 4:].mean((1, 2))], 1)\n"
    )
    monkeypatch.syspath_prepend(str(folder))


def test_a_model_that_is_installed_and_allowed_runs_and_its_failures_are_counted_under_noise(
    installed, tmp_path
):
    allowed = {name: allowing(entry_points=("triage",)) for name in ("ada", "bern", "cern")}
    sites = sites_of(bars(0.5), tmp_path / "sites", policies=allowed)
    news = []
    people = begun(sites, entry_point="triage", news=news)
    people.agenda = replace(people.agenda, noise=1.0)
    failed = first_question(people)[-1]
    assert failed != 30 and abs(failed - 30) < 5
    told = " ".join(what for _, what in news) + "".join(
        (site.folder / "audit.jsonl").read_text() for site in sites.values()
    )
    assert "patient" not in told and "RuntimeError" not in told


def test_an_entry_point_that_a_site_does_not_allow_or_have_is_refused(installed, tmp_path):
    with pytest.raises(
        TooFewSites, match=r"ada refuses: entry_point='triage': not allowed here; allowed: none"
    ):
        call_to(sites_of(bars(0.5), tmp_path / "a"), WRONG, entry_point="triage").gather()
    allowed = {name: allowing(entry_points=("triag",)) for name in ("ada", "bern", "cern")}
    sites = sites_of(bars(0.5), tmp_path / "b", policies=allowed)
    with pytest.raises(TooFewSites, match=r"nothing of that name is installed.*did you mean 'triage'"):
        call_to(sites, WRONG, entry_point="triag").gather()


def test_a_site_without_onnxruntime_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_graph, "_OWN_NAME", "a_runtime_that_nobody_has")
    with pytest.raises(
        TooFewSites, match=r"needs onnxruntime; install it with: pip install 'fedsynth\[inspect\]'"
    ):
        call_to(sites_of(bars(0.5), tmp_path), WRONG, content=classifier()).gather()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"import os", "cannot be read as an ONNX model"),
        (classifier(np.ones((64, 3))), r"scores of shape \['n', 3\]; expected \[rows, 2\] or \[rows, 1\]"),
        (classifier(np.ones((49, 2)), (1, 7, 7)), r"expected float numbers of shape \[rows, 1, 8, 8\]"),
        (b"x" * (onnx_graph.MOST_BYTES + 1), "at most 33554432 are accepted"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_before_it_sees_a_row(content, told, tmp_path):
    sites = sites_of(bars(0.5), tmp_path)
    with pytest.raises(TooFewSites, match=f"ada refuses: .*{told}"):
        first_question(begun(sites, content=content))
    assert all(not site.ledger.lines() for site in sites.values())


def test_another_model_than_the_one_named_is_refused(tmp_path):
    people = begun(sites_of(bars(0.5), tmp_path), content=classifier())
    people.call = replace(people.call, content=classifier(np.ones((64, 2))))
    with pytest.raises(TooFewSites, match="another SHA-256"):
        first_question(people)


def test_a_private_inspection_that_asks_without_noise_is_refused(tmp_path):
    sites = sites_of(bars(0.5), tmp_path, seed=None)
    people = begun(sites, content=classifier())
    people.agenda = replace(people.agenda, noise=None)
    with pytest.raises(TooFewSites, match="asks its questions with noise; this one has none"):
        first_question(people)
    assert all(not site.ledger.lines() for site in sites.values())


def test_a_question_is_answered_and_not_trained_on(tmp_path):
    news = []
    sites = sites_of(bars(0.5), tmp_path)
    people = begun(sites, content=classifier(), news=news)
    question = InspectionQuestion(MEETING, tuple(WRONG.selections.values()), 1)
    algorithm = people.agenda.trainer.algorithm(1.0)
    algorithm = replace(algorithm, opening=question.query(SCHEMA, 60, people.agenda.noise))
    state = algorithm.init(Rng(1))
    link = people._opened(question, algorithm, state)
    link.start(algorithm, np.arange(60), state)
    assert link.next().lost == 20
    logs = [path.read_text() for path in tmp_path.rglob("audit.jsonl")]  # what was drawn is not told further
    assert any("this step of an inspection has no such job" in log for log in logs)
    assert all(not site.ledger.lines() for site in sites.values())


def test_no_site_spends_more_on_an_inspection_than_it_agreed_to_however_many_steps_are_asked(tmp_path):
    sites = {"ada": sites_of(bars(0.5), tmp_path, seed=None)["ada"]}
    people = begun(sites, content=classifier(), minimum=1)
    assert set(people.agenda.look(people, Rng(), free, free).models) == {"bad"}
    once_more = SelectionTraining("bad", tuple(WRONG.selections.values()), 1)
    with pytest.raises(TooFewSites, match="over the budget of 12"):
        people.train(once_more, people.agenda.trainer.algorithm(1.0), Rng(), free)
    assert 0.9 * 12 < sites["ada"].ledger.epsilon(1e-2, unit="client") <= 12


def test_a_run_under_another_name_than_its_step_has_is_refused(tmp_path):
    """Its cost would be counted under an agreement of its own."""

    class Misnamed(Call):
        def remote(self, plan):
            link = super().remote(plan)
            link.run = "another"
            return link

    people = begun(sites_of(bars(0.5), tmp_path), content=classifier())
    people.call = Misnamed(**people.call.__dict__)
    with pytest.raises(TooFewSites, match="this step of the inspection is the run 'look-shares-0'"):
        first_question(people)
