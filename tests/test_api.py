"""The functions of the package beside the Synthesizer: plan, evaluate, report and audit, on data and files."""

import pytest

import fedsynth
from fedsynth.errors import BadInput
from fedsynth.synthesis.request import DELTA


@pytest.fixture(scope="module")
def run(schema, frame, tmp_path_factory):
    """Without a label: nothing is then measured by training classifiers."""
    folder = tmp_path_factory.mktemp("run") / "RUN"
    made = fedsynth.Synthesizer(schema=schema.with_label(None), epsilon=1, rounds=2).fit(
        frame, client_column="owner"
    )
    made.save(folder)
    return folder


def test_a_plan_has_the_runs_that_a_schema_allows_on_the_budget(schema, tmp_path):
    people = {"clients": 2_000, "records": 4_000, "epsilon": 1}
    plans = fedsynth.plan(schema, **people, recipe="auto", unit="client", trust="central", project=[20_000])
    (run,) = plans.runs
    assert (run.recipe, run.clients, run.delta) == ("marginals", 2_000, DELTA) and 0.9 < run.epsilon <= 1
    assert plans.projections[0].epsilon < run.epsilon
    assert (
        "a run takes recipe marginals" in str(plans) and "marginals (client, central)" in plans._repr_html_()
    )
    schema.save(tmp_path / "schema.json")
    assert (
        fedsynth.plan(tmp_path / "schema.json", **people, recipe="marginals", trust="central").runs[0] == run
    )


def test_what_cannot_be_planned_is_said_in_the_words_of_python(schema):
    with pytest.raises(BadInput, match="^epsilon=1000: above 500 nothing is promised"):
        fedsynth.plan(schema, clients=20, records=20, epsilon=1000)
    with pytest.raises(BadInput, match="^project=5: a projection is to at least the 20 clients"):
        fedsynth.plan(schema, clients=20, records=20, epsilon=1, project=[5])


def test_a_file_is_compared_with_a_frame(schema, frame, tmp_path):
    frame.to_csv(tmp_path / "real.csv", index=False)
    schema.with_label(None).save(tmp_path / "schema.json")
    scores = fedsynth.evaluate(tmp_path / "real.csv", frame.drop(columns="owner"), tmp_path / "schema.json")
    assert scores["column shapes"].value == pytest.approx(1)
    assert "column shapes: 1.000" in str(scores)
    with pytest.raises(BadInput, match="no score 'column shape'; did you mean 'column shapes'"):
        scores["column shape"]


def test_what_cannot_be_evaluated_is_said_in_the_words_of_python(schema, frame):
    with pytest.raises(BadInput, match="epsilon= and delta: a claim has both"):
        fedsynth.evaluate(frame, frame, schema, epsilon=1)
    with pytest.raises(BadInput, match="synthetic: does not fit the schema: column 'age' is missing"):
        fedsynth.evaluate(frame, frame.drop(columns="age"), schema)


def test_real_rows_outside_the_schema_are_refused_before_anything_is_measured(schema, frame, run):
    """Measured in full, one value of the test table had made most scores fail after minutes."""
    odd = frame.assign(age=999, owner="somebody else")
    for call in (
        lambda: fedsynth.report(run, frame, odd),
        lambda: fedsynth.evaluate(frame, frame, schema, test=odd),
    ):
        with pytest.raises(BadInput, match="does not fit the schema: column 'age': .* rows lie outside"):
            call()


def test_a_report_is_written_beside_the_run(frame, run, monkeypatch):
    monkeypatch.setattr("fedsynth.api.ROWS", 60)  # the synthetic rows are drawn for it
    pages = fedsynth.report(run, frame)
    assert pages.internal.exists() and pages.public.exists() and pages.private
    assert pages.evaluation["column shapes"].value > 0
    with pytest.raises(BadInput, match="test= needs real= as well"):
        fedsynth.report(run, test=frame)


def test_a_recipe_and_a_run_are_audited(run):
    audit = fedsynth.audit("marginals", epsilon=1, canaries=200, seed=1)
    assert audit.epsilon_lower <= audit.claimed <= 1 and not audit.exceeds
    with pytest.raises(BadInput, match="did you mean 'marginals'"):
        fedsynth.audit("marginal")
