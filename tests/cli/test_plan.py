"""`fedsynth plan`: the trade-off before any data are read."""

import json

import pytest
from typer.testing import CliRunner

from fedsynth.cli.main import app
from fedsynth.errors import BadInput
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


def test_every_unit_and_trust_stands_side_by_side(planned):
    rows = planned[0]["rows"]
    assert {(row["unit"], row["trust"]) for row in rows} == {
        (unit, trust) for unit in ("client", "record") for trust in ("central", "distributed", "local")
    }
    assert all(row["epsilon"] == 4 and not row["projection"] for row in rows)


def test_local_trust_needs_more_noise_in_the_mean_and_gets_no_amplification(planned):
    by_trust = {row["trust"]: row for row in planned[0]["rows"] if row["unit"] == "client"}
    assert by_trust["local"]["noise_in_mean"] > 5 * by_trust["central"]["noise_in_mean"]
    assert by_trust["local"]["sampling"] == "none" and by_trust["local"]["adjacency"] == "replace-one"
    assert by_trust["distributed"]["noise_multiplier"] == by_trust["central"]["noise_multiplier"]


def test_projections_are_marked_and_cheaper_with_more_clients(planned):
    projections = planned[0]["projections"]
    assert all(row["projection"] for row in projections)
    central = [row["epsilon"] for row in projections if row["trust"] == "central"]
    local = [row["epsilon"] for row in projections if row["trust"] == "local"]
    assert central[1] < central[0] < 4 and central[0] < local[0] and local[1] < local[0]


def test_the_noise_of_the_very_recipe_is_given(planned):
    (run,) = planned[0]["as_it_would_run"]
    assert run["recipe"] == "fvae" and run["noise_multiplier"] > 0.5 and run["parameters"] > 100


def test_the_legacy_noise_stands_beside_its_true_epsilon(planned):
    local = planned[0]["local"]
    assert local["legacy"]["noise_multiplier"] < local["noise"]
    assert local["legacy"]["true_epsilon"] > local["legacy"]["claimed_epsilon"] == 4


def test_the_plot_is_a_picture(planned):
    assert planned[1].read_bytes().startswith(b"\x89PNG")


def test_the_table_says_projection(schema, tmp_path):
    plot = tmp_path / "plan.html"
    text = invoke(schema, "--project", "20000", "--plot", str(plot)).stdout
    assert "PROJECTIONS" in text and "no data were read" in text and "not offered" in text
    assert "data:image/png;base64" in plot.read_text()


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
    found = json.loads(invoke(schema, "--recipe", "dp_fed_wae", "--json").stdout)
    (run,) = found["as_it_would_run"]
    assert found["rows"] == [] and run["rounds"] >= 1 and run["noise_multiplier"] is None
    assert "messages drawn by epsilon" in invoke(schema, "--recipe", "dp_fed_wae").stdout


def test_a_recipe_that_promises_nothing_has_no_row_with_an_epsilon(schema):
    found = json.loads(invoke(schema, "--recipe", "dpd_fvae_local_published", "--json").stdout)
    assert found["rows"] == [] and "no record-level guarantee" in found["as_it_would_run"][0]["problem"]


def test_without_a_recipe_all_are_planned_or_say_why_not(tmp_path):
    place = tmp_path / "text.json"
    place.write_text(json.dumps({"version": 1, "kind": "text", "vocabulary": "bytes", "length": 4}))
    words = ["plan", "--schema", str(place), "--clients", "200", "--records", "2000", "--epsilon", "4"]
    result = CliRunner().invoke(app, [*words, "--delta", "1e-5"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert all(
        f"{name} would run" in result.stdout or f"{name} is not planned" in result.stdout for name in RECIPES
    )
    assert "not offered" not in result.stdout


def test_a_recipe_of_counts_takes_all_records_in_every_round(schema):
    result = json.loads(invoke(schema, "--recipe", "marginals", "--json").stdout)
    rows = {(row["unit"], row["trust"]): row for row in result["rows"] if row["offered"]}
    assert set(rows) == {(unit, trust) for unit, trust in RECIPES["marginals"].offers}
    assert rows["record", "distributed"]["rate"] == 1 and rows["record", "distributed"]["rounds"] == 10
    (planned,) = result["as_it_would_run"]
    assert planned["noise_multiplier"] == pytest.approx(
        rows["client", "central"]["noise_multiplier"], rel=0.01
    )
