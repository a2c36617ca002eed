"""Whoever reads a schema that was paid for, or the statement of a run on it, learns no more than was paid."""

import json

import numpy as np
import pandas as pd
import pytest

from fedsynth.cli.main import main
from fedsynth.data.clients import clients_from
from fedsynth.data.schema import Schema
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.synthesizer import Synthesizer

DRAWS = 20
PEOPLE = 60


def table(**changes) -> pd.DataFrame:
    """One row a person; `changes` name the value that the last person has in a column."""
    draw = np.random.default_rng(1)
    rows = pd.DataFrame(
        {
            "who": np.arange(PEOPLE),
            "dose": draw.integers(1, 60, PEOPLE),
            "smokes": draw.integers(0, 2, PEOPLE),
            "ill": np.where(draw.random(PEOPLE) < 0.5, "yes", "no"),
        }
    )
    for name, value in changes.items():
        rows[name] = rows[name].astype(object)
        rows.loc[PEOPLE - 1, name] = value
        rows[name] = pd.to_numeric(rows[name])
    return rows


def drafted(rows: pd.DataFrame, folder, epsilon: float) -> dict[str, object]:
    """The schema that `fedsynth schema draft --pay` publishes."""
    rows.to_csv(folder / "rows.csv", index=False)
    out = folder / "schema.json"
    columns = ["--client-column", "who", "--label", "ill"]
    paid = ["--pay", f"epsilon={epsilon}", "--out", str(out), "--force"]
    (folder / "schema.ledger.jsonl").unlink(missing_ok=True)
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main(["schema", "draft", str(folder / "rows.csv"), *columns, *paid]) or 0)
    return {"columns": []} if ended.value.code else json.loads(out.read_text())  # a refusal is an outcome too


def kinds(schema: dict[str, object]) -> str:
    """What is said of a column beside its bounds and categories."""
    public = ("name", "type", "decimals", "missing", "scale")
    return json.dumps([{name: column.get(name) for name in public} for column in schema["columns"]])


@pytest.mark.parametrize("change", [{"dose": 3.5}, {"smokes": 2}, {"dose": None}], ids=str)
def test_types_of_a_paid_schema_tell_no_neighbors_apart(change, tmp_path):
    """At epsilon 0.1 two sets of twenty draws that have nothing in common are less likely than one in a billion."""
    outcomes = [
        {kinds(drafted(rows, tmp_path, 0.1)) for _ in range(DRAWS)} for rows in (table(), table(**change))
    ]
    assert outcomes[0] & outcomes[1], f"{change} is seen in {DRAWS} of {DRAWS} draws"


def test_a_run_on_a_paid_schema_spends_what_was_asked_with_it(tmp_path):
    rows = pd.concat([table().assign(who=lambda rows, n=n: rows["who"] + 100 * n) for n in range(8)])
    schema = Schema.from_dict(drafted(rows, tmp_path, 0.5))
    arguments = {"latent": 2, "hidden": (4,), "pretraining": 2, "group": 20}
    request = Request(
        schema=str(tmp_path / "schema.json"),
        recipe="dp_fed_wae",
        epsilon=2.0,
        delta=1e-5,
        arguments=arguments,
    )
    finished = Synthesizer.of(request, schema).fit(clients_from(rows, client_column="who"))
    assert finished.privacy.epsilon <= 2.0, f"asked 2.0, the statement says {finished.privacy.epsilon:.4g}"
