"""`fedsynth run DATA --schema S --epsilon 1 --out RUN` is enough."""

import json
import tomllib

from typer.testing import CliRunner

from fedsynth.cli.main import app


def test_rows_without_owners_are_each_a_participant_and_the_statement_says_so(tmp_path):
    age = {"name": "age", "type": "integer", "min": 0, "max": 9}
    (tmp_path / "schema.json").write_text(json.dumps({"version": 1, "kind": "table", "columns": [age]}))
    (tmp_path / "data.csv").write_text("age\n" + "1\n2\n3\n" * 50)
    words = ["--schema", tmp_path / "schema.json", "--epsilon", "1", "--seed", "1", "--out", tmp_path / "RUN"]
    ended = CliRunner().invoke(app, ["run", str(tmp_path / "data.csv"), *map(str, words)])
    assert ended.exit_code == 0 and "recipe marginals (unit client, trust central): " in ended.stderr
    statement = json.loads((tmp_path / "RUN" / "privacy.json").read_text())
    assert any(one.startswith("No column says whose a row is") for one in statement["caveats"])
    recipe = tomllib.loads((tmp_path / "RUN" / "recipe.toml").read_text())
    assert recipe["delta"] == 1e-6 and recipe["recipe"] == "marginals" and "marginals" in recipe["chosen"]
