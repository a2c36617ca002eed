"""`fedsynth plan`: the trade-off before any data are read."""

import json

import pytest
from typer.testing import CliRunner

from fedsynth.cli.main import app
from fedsynth.errors import BadInput, Incompatible
from fedsynth.recipes.registry import RECIPES

SCHEMA = {
    "version": 1,
    "kind": "table",
    "label": "y",
    "columns": [
        {"name": "x", "type": "continuous", "min": 0.0, "max": 1.0},
        {"name": "y", "type": "categorical", "categories": ["a", "b"]},
    ],
    "provenance": {"x": "public", "y": "public"},
}


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    return path


def invoke(schema, *extra):
    given = [
        "--schema",
        str(schema),
        "--clients",
        "200",
        "--records",
        "20000",
        "--epsilon",
        "4",
        "--delta",
        "1e-5",
    ]
    chosen = extra if "--recipe" in extra else ("--recipe", "fvae", *extra)
    return CliRunner().invoke(app, ["plan", *given, *chosen], catch_exceptions=False)


@pytest.fixture(scope="module")
def planned(schema, tmp_path_factory):
    plot = tmp_path_factory.mktemp("plot") / "plan.png"
    result = invoke(schema, "--project", "20000,1e6", "--plot", str(plot), "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), plot


def test_every_offer_of_the_recipe_stands_side_by_side_at_the_same_budget(planned):
    rows = planned[0]["rows"]
    assert [(row["unit"], row["trust"]) for row in rows] == list(RECIPES["fvae"].offers)
    assert all(3.9 < row["epsilon"] <= 4 and not row["projection"] for row in rows)


def test_local_trust_needs_more_noise_in_the_mean_and_gets_no_amplification(planned):
    by_trust = {row["trust"]: row for row in planned[0]["rows"]}
    assert by_trust["local"]["noise_in_mean"] > 5 * by_trust["central"]["noise_in_mean"]
    assert by_trust["local"]["adjacency"] == "replace-one"


def test_projections_are_marked_and_cheaper_with_more_clients_but_never_free(planned):
    projections = planned[0]["projections"]
    assert all(row["projection"] for row in projections)
    first, second = (row["epsilon"] for row in projections)
    assert 0 < second < first < 4


def test_the_plot_is_a_picture(planned):
    assert planned[1].read_bytes().startswith(b"\x89PNG")


def test_the_page_is_a_page_like_the_others_and_lines_fit_the_terminal(schema, tmp_path):
    plot = tmp_path / "plan.html"
    text = invoke(schema, "--project", "20000", "--plot", str(plot)).stdout
    assert "PROJECTIONS" in text and max(map(len, text.splitlines())) <= 80
    page = plot.read_text()
    assert '<html lang="en">' in page and "viewport" in page and "<svg" in page and "data:image" not in page
    assert page.count("<figure") == 1


def test_auto_is_what_a_run_would_take_with_what_to_expect(schema):
    words = ["plan", "--schema", str(schema), "--clients", "20000", "--records", "20000", "--epsilon", "1"]
    told = CliRunner().invoke(app, [*words, "--delta", "1e-5", "--recipe", "auto"]).stdout
    flat = " ".join(told.split())
    assert "a run takes recipe marginals (unit client, trust central)" in flat
    assert "Expect " in flat and "AUC of gradient boosting" in flat and "Adult" in flat


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (("--project", "100"), "at least the 200"),
        (("--project", "many"), "commas"),
        (("--plot", "x.pdf"), ".png"),
        (("--plot", "x.png", "--recipe", "dp_fed_wae"), "no noise to plot"),
    ],
)
def test_bad_requests_are_explained(schema, extra, message):
    with pytest.raises(BadInput, match=message):
        invoke(schema, *extra)


def test_a_recipe_without_noise_is_planned_as_it_would_run(schema):
    (row,) = json.loads(invoke(schema, "--recipe", "dp_fed_wae", "--json").stdout)["rows"]
    assert row["rounds"] >= 1 and row["noise_multiplier"] is None
    assert "by epsilon" in invoke(schema, "--recipe", "dp_fed_wae").stdout


def test_a_recipe_that_promises_nothing_is_refused_with_the_reason(schema):
    with pytest.raises(Incompatible, match="no record-level guarantee"):
        invoke(schema, "--recipe", "dpd_fvae_local_published")


def test_a_unit_that_the_recipe_does_not_offer_is_refused_with_what_it_offers(schema):
    with pytest.raises(Incompatible, match="fvae offers unit=client"):
        invoke(schema, "--unit", "record")


def test_without_a_recipe_those_for_this_kind_of_data_are_planned(tmp_path):
    place = tmp_path / "text.json"
    place.write_text(json.dumps({"version": 1, "kind": "text", "vocabulary": "bytes", "length": 4}))
    words = ["plan", "--schema", str(place), "--clients", "200", "--records", "2000", "--epsilon", "4"]
    result = CliRunner().invoke(app, [*words, "--delta", "1e-5", "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert {row["recipe"] for row in (*told["rows"], *told["problems"])} == {"dp_fedavg_lm"}


def test_a_recipe_of_counts_takes_everybody_in_every_round(schema):
    rows = json.loads(invoke(schema, "--recipe", "marginals", "--json").stdout)["rows"]
    assert [(row["unit"], row["trust"]) for row in rows] == list(RECIPES["marginals"].offers)
    assert {(row["cohort"], row["rounds"], row["sampling"]) for row in rows} == {(200.0, 10, "none")}
