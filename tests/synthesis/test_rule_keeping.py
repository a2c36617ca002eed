import numpy as np
import pandas as pd
import pytest
import torch

from fedsynth import Rng, Synthesizer, clients_from
from fedsynth.data.schema import Schema
from fedsynth.data.table import Table, check, valid_rows
from fedsynth.errors import BadInput
from fedsynth.synthesis.rule_keeping import keep_rules

SCHEMA = Schema.from_dict(
    {
        "columns": [
            {"name": "key", "type": "id"},
            {"name": "admission", "type": "date", "min": "2020-01-01", "max": "2020-12-31"},
            {"name": "discharge", "type": "date", "min": "2020-01-01", "max": "2020-12-31", "missing": True},
            {"name": "arrival", "type": "time", "grain": "hour"},
            {"name": "seen", "type": "timestamp", "min": "2020-01-01", "max": "2020-02-01", "grain": "hour"},
            {"name": "zip", "type": "text-code", "categories": ["01234", "90210"]},
            {"name": "sex", "type": "categorical", "categories": ["F", "M"]},
            {"name": "pregnant", "type": "binary", "categories": [False, True]},
            {"name": "a", "type": "integer", "min": 0, "max": 9},
            {"name": "b", "type": "integer", "min": 0, "max": 9},
            {"name": "total", "type": "integer", "min": 0, "max": 12},
            {"name": "ill", "type": "binary"},
        ],
        "label": "ill",
        "constraints": [
            "discharge >= admission",
            "pregnant == true implies sex == 'F'",
            "total == a + b",
            "ill == 1 implies a > 2",
        ],
    }
)


def patients(count=300):
    draw = np.random.default_rng(0)
    admission = pd.Timestamp("2020-01-01") + pd.to_timedelta(draw.integers(0, 300, count), unit="D")
    discharge = pd.Series(admission + pd.to_timedelta(draw.integers(0, 30, count), unit="D"))
    sex = draw.choice(["F", "M"], count)
    a, b = draw.integers(0, 6, count), draw.integers(0, 6, count)
    return pd.DataFrame(
        {
            "key": draw.permutation(count) + 5000,
            "admission": admission,
            "discharge": discharge.mask(draw.random(count) < 0.1),
            "arrival": [f"{hour:02}:15" for hour in draw.integers(0, 24, count)],
            "seen": pd.Timestamp("2020-01-01 00:30")
            + pd.to_timedelta(draw.integers(0, 700, count), unit="h"),
            "zip": draw.choice(["01234", "90210"], count),
            "sex": sex,
            "pregnant": (sex == "F") & (draw.random(count) < 0.5),
            "a": a,
            "b": b,
            "total": a + b,
            "ill": ((a > 2) & (draw.random(count) < 0.5)).astype(int),
        }
    )


def keeps(frame):
    assert check(frame, SCHEMA) == []
    assert frame["key"].tolist() == list(range(1, len(frame) + 1))
    assert frame["pregnant"].dtype == bool and frame["ill"].dtype == "int64"
    assert set(frame["zip"]) <= {"01234", "90210"}
    assert (frame["total"] == frame["a"] + frame["b"]).all()


RECIPES = {
    "marginals": {},
    "dpd_fvae": {"rounds": 1},
    "fvae": {"rounds": 1},
    "fed_vae": {"rounds": 1},
    "pp_fedgan": {"rounds": 1, "pretraining": 20},
    "dp_fed_wae": {"rounds": 1, "pretraining": 20},
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_no_sampled_row_breaks_a_constraint(recipe):
    clients = clients_from(patients(), clients=30, rng=Rng(1))
    made = Synthesizer(recipe, SCHEMA, private=False, seed=1, **RECIPES[recipe]).fit(clients)
    keeps(made.sample(200, seed=2))
    ill = made.sample(50, condition=["ill=1", "a>=4"], seed=3)
    keeps(ill)
    assert (ill["ill"] == 1).all() and (ill["a"] >= 4).all()


def encoded(frame):
    return Table(SCHEMA).encode(frame)


def broken(count, **values):
    frame = patients(count).assign(**values)
    free = Schema.from_dict({**SCHEMA.to_dict(), "constraints": ["total == a + b"]})
    return Table(free).encode(frame.assign(total=frame["a"] + frame["b"]))


def test_rows_that_keep_the_rules_are_left_as_they_are():
    x, y = encoded(patients(40))
    kept_x, kept_y = keep_rules(Table(SCHEMA), x.clone(), y, lambda labels, rng: 1 / 0, Rng(0))
    assert torch.equal(kept_x, x) and torch.equal(kept_y, y)


def test_rows_are_drawn_again_with_their_label_until_they_keep_the_rules():
    good_x, good_y = encoded(patients(300))
    x, y = broken(20, sex="M", pregnant=True, a=5, b=5, ill=[0, 1] * 10)

    def draw(labels, rng):
        return torch.stack([good_x[(good_y == label).nonzero()[0, 0]] for label in labels])

    kept_x, kept_y = keep_rules(Table(SCHEMA), x, y, draw, Rng(0))
    assert torch.equal(kept_y, y)
    assert valid_rows(SCHEMA, Table(SCHEMA).numbers(kept_x, kept_y)).all()


def test_a_row_that_never_keeps_a_rule_is_repaired_and_its_other_columns_stay():
    encoding = Table(SCHEMA)
    good_x, good_y = encoded(patients(30))
    bad_x, bad_y = broken(10, sex="M", pregnant=True, a=3, b=3, ill=0, zip="90210")
    x, y = torch.cat([good_x, bad_x]), torch.cat([good_y, bad_y])
    kept_x, kept_y = keep_rules(
        encoding, x.clone(), y, lambda labels, rng: bad_x[:1].expand(len(labels), -1), Rng(0)
    )
    before, after = encoding.numbers(x, y), encoding.numbers(kept_x, kept_y)
    assert valid_rows(SCHEMA, after).all()
    for name in ("zip", "a", "b", "ill"):
        assert np.array_equal(before[name], after[name])


def test_rules_that_no_row_keeps_are_one_sentence():
    x, y = broken(10, sex="M", pregnant=True, a=3, b=3, ill=0)
    with pytest.raises(BadInput, match="no synthetic row keeps them all"):
        keep_rules(Table(SCHEMA), x.clone(), y, lambda labels, rng: x[:1].expand(len(labels), -1), Rng(0))
