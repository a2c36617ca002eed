"""`schema draft --pay`: types are declared or learned under noise, and one person does not decide them."""

import json

import numpy as np
import pandas as pd
import pytest

from fedsynth.cli.main import main
from fedsynth.data.schema import Schema

PEOPLE, DRAWS = 3000, 20
DOSE = np.arange(PEOPLE) % 8 + 1
CASES = {
    "one dose of 3.5": (DOSE, 3.5),
    "one third value": (DOSE % 2, 7),
    "one missing value": (DOSE, None),
    "one text among numbers": (DOSE, "unknown"),
}


def outcome(folder, values, capsys):
    """All that a reader sees: the exit code, and the file that was written."""
    pd.DataFrame({"dose": values}).to_csv(folder / "data.csv", index=False)
    with pytest.raises(SystemExit) as ended:
        main(
            ["schema", "draft", str(folder / "data.csv"), "--pay", "epsilon=0.1", "--force"]
            + ["--out", str(folder / "schema.json")]
        )
    capsys.readouterr()
    written = Schema.load(folder / "schema.json").to_dict() if not ended.value.code else None
    return json.dumps([ended.value.code, written])


@pytest.mark.parametrize("case", CASES)
def test_one_person_does_not_decide_the_type(case, tmp_path, capsys):
    everybody, one = CASES[case]
    without = pd.Series(everybody, dtype=object)
    added = pd.concat([without, pd.Series([one], dtype=object)])
    outcomes = [{outcome(tmp_path, values, capsys) for _ in range(DRAWS)} for values in (without, added)]
    assert outcomes[0] & outcomes[1], f"{DRAWS} of {DRAWS} draws tell them apart: {outcomes}"


@pytest.fixture
def visits(tmp_path):
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "dose": draw.integers(1, 40, PEOPLE) / 2,
            "visits": draw.integers(0, 30, PEOPLE),
            "grade": draw.choice(["a", "b", "c"], PEOPLE),
            "code": [f"{number:03}" for number in draw.integers(0, 5, PEOPLE)],
            "note": [f"note {number}" for number in range(PEOPLE)],
            "ill": draw.integers(0, 2, PEOPLE),
        }
    )
    frame.to_csv(tmp_path / "visits.csv", index=False)
    return tmp_path


def draft(folder, *more):
    with pytest.raises(SystemExit) as ended:
        main(
            ["schema", "draft", str(folder / "visits.csv"), "--out", str(folder / "s.json"), *map(str, more)]
        )
    return ended.value.code or 0


def test_types_are_learned_under_noise(visits, capsys):
    assert draft(visits, "--label", "ill", "--pay", "epsilon=4") == 0
    schema = Schema.load(visits / "s.json")
    kinds = {column.name: column.type for column in schema.columns}
    assert kinds == {
        "dose": "continuous", "visits": "integer", "grade": "categorical", "code": "text-code", "ill": "binary",
    }  # fmt: skip
    assert schema.column("dose").decimals == 1 and schema.column("visits").bounds == (0, 31)
    assert schema.column("code").labels[:5] == ("000", "001", "002", "003", "004")
    assert schema.classes == ("0", "1")
    told = capsys.readouterr().out
    assert "note: left out, because it holds nothing that stands out of the noise" in told
    assert "dose: continuous, 0 to 32" in told and "paid for" in told


def test_rows_fit_the_schema_that_they_paid_for(visits, capsys):
    assert draft(visits, "--label", "ill", "--pay", "epsilon=4") == 0
    frame = pd.read_csv(visits / "visits.csv", dtype=str).drop(columns="note")
    frame.loc[0] = [None, "3.6", "rare", None, "2"]
    frame.loc[1] = ["unknown", "-5", None, "7", None]
    frame.to_csv(visits / "visits.csv", index=False)
    with pytest.raises(SystemExit) as ended:
        main(["schema", "check", str(visits / "visits.csv"), "--schema", str(visits / "s.json")])
    assert not ended.value.code, capsys.readouterr().out


def test_what_is_declared_is_taken_and_only_the_rest_is_paid_for(visits, capsys):
    (visits / "types.toml").write_text(
        'visits = "integer:missing=false"\nnote = "categorical"\ncode = "categorical"\n'
        'ill = {type = "binary", categories = ["0", "1"]}\n[dose]\ntype = "continuous"\ndecimals = 2\nmissing = true\n'
    )
    flags = ("--types", visits / "types.toml", "--type", "grade=ordinal:missing=false")
    assert draft(visits, "--label", "ill", "--pay", "epsilon=4", "--json", *flags) == 0
    schema = Schema.load(visits / "s.json")
    assert (schema.column("dose").decimals, schema.column("dose").missing) == (2, True)
    assert schema.column("visits").type == "integer" and not schema.column("visits").missing
    assert schema.column("grade").type == "ordinal" and schema.column("grade").labels[:3] == ("a", "b", "c")
    assert schema.provenance["ill"] == "public" and schema.provenance["dose"] == "paid"
    assert json.loads(capsys.readouterr().out)["left_out"] == ["note"]
    lines = (visits / "s.ledger.jsonl").read_text()
    assert "types of columns" not in lines and "bounds and categories of columns" in lines


def test_a_schema_is_a_declaration_too(visits):
    Schema.from_dict(
        {
            "version": 1,
            "kind": "table",
            "columns": [{"name": "visits", "type": "integer", "min": 0, "max": 50}],
        }
    ).save(visits / "known.json")
    assert draft(visits, "--pay", "epsilon=4", "--types", visits / "known.json") == 0
    schema = Schema.load(visits / "s.json")
    assert schema.column("visits").bounds == (0, 50) and schema.provenance["visits"] == "public"


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--type", "dose=continuous"], "only with --pay"),
        (["--pay", "epsilon=1", "--type", "dose"], "expected COLUMN=TYPE"),
        (["--pay", "epsilon=1", "--type", "dose=float"], "unknown type 'float'"),
        (["--pay", "epsilon=1", "--type", "dose=continuous:digits=2"], "unknown option 'digits=2'"),
        (["--pay", "epsilon=1", "--type", "doze=continuous"], "did you mean 'dose'"),
        (
            ["--pay", "epsilon=1", "--type", "ill=binary"],
            "declare it categorical, or list its two categories",
        ),
        (["--pay", "epsilon=1", "--type", "dose=integer", "--type", "dose=integer"], "declared twice"),
        (["--pay", "epsilon=1", "--label", "dose", "--type", "dose=continuous"], "declared continuous"),
        (["--pay", "epsilon=1", "--label", "sick"], "label 'sick' is not in the table"),
        (["--pay", "epsilon=1", "--types", "none.toml"], "no such file"),
    ],
)
def test_what_cannot_be_declared_is_one_sentence_and_costs_nothing(visits, capsys, flags, problem):
    assert draft(visits, *flags) == 2
    assert problem in capsys.readouterr().err
    assert not (visits / "s.ledger.jsonl").exists() and not (visits / "s.json").exists()


def test_help_teaches_the_declaration(capsys):
    with pytest.raises(SystemExit):
        main(["schema", "draft", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "--type dose=continuous:decimals=1" in told and "names of the columns count as public" in told
