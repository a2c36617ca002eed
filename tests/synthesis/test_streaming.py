"""Rows that are drawn and written part by part are those that are drawn at once."""

import numpy as np
import pandas as pd
import pytest

from fedsynth.cli.main import main
from fedsynth.data.schema import Schema
from fedsynth.data.table_files import read_table, write_parts, write_table
from fedsynth.rng import Rng
from fedsynth.synthesis import counted_rows, generator
from fedsynth.synthesis.synthesizer import Synthesizer
from samples import TABLE, make_frame

COLUMNS = [{"name": "key", "type": "id"}, *TABLE["columns"]]
KEYED = {**TABLE, "columns": COLUMNS}


@pytest.fixture
def few(monkeypatch):
    """Parts of 40 rows, drawn 20 at a time."""
    for module in (generator, counted_rows):
        monkeypatch.setattr(module, "PIECE", 20)
        monkeypatch.setattr(module, "PART", 40)


@pytest.fixture(scope="module", params=["marginals", "fvae"])
def trained(request):
    rows = make_frame(np.repeat(np.arange(40), 3)).assign(key="a")
    settings = {"hidden": (4,), "latent": 1} if request.param == "fvae" else {}
    synthesizer = Synthesizer(
        request.param, Schema.from_dict(KEYED), epsilon=50.0, delta=1e-3, rounds=3, seed=1, **settings
    )
    return synthesizer.fit(rows, client_column="owner")


def test_parts_are_the_rows_of_one_draw(few, trained):
    parts = list(trained.stream(110, seed=3))
    assert [len(part) for part in parts] == [40, 40, 30]
    whole = trained.generator.sample(110, Rng(3))
    assert whole["key"].tolist() == list(range(1, 111))
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), whole)


def test_what_needs_all_rows_at_once_is_one_part(few, trained):
    condition = {trained.schema.label: trained.schema.label_column.labels[0]}
    (part,) = trained.stream(110, condition=condition, seed=3)
    pd.testing.assert_frame_equal(part, trained.sample(110, condition=condition, seed=3))


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_a_file_of_parts_is_the_file_of_the_whole(tmp_path, trained, ending):
    whole = trained.sample(90, seed=5)
    write_table(whole, tmp_path / f"whole.{ending}")
    write_parts((whole[start : start + 40] for start in (0, 40, 80)), tmp_path / f"parts.{ending}")
    one, other = (read_table(tmp_path / f"{name}.{ending}", trained.schema) for name in ("whole", "parts"))
    pd.testing.assert_frame_equal(one, other)
    if ending == "csv":
        assert (tmp_path / "whole.csv").read_bytes() == (tmp_path / "parts.csv").read_bytes()


def test_a_column_without_values_in_the_first_part_keeps_its_type(tmp_path):
    text = pd.DataFrame({"a": pd.array([None, "x"], dtype="str"), "b": pd.array([None, 3], dtype="Int64")})
    write_parts((text[:1], text[1:]), tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "t.parquet"), text)


def test_a_failure_in_a_later_part_leaves_nothing_behind(tmp_path):
    def parts():
        yield from [pd.DataFrame({"a": [1]})] * 2
        raise KeyboardInterrupt

    for name in ("t.csv", "t.parquet"):
        with pytest.raises(KeyboardInterrupt):
            write_parts(parts(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_the_same_rows_in_parts(few, trained, tmp_path):
    trained.save(tmp_path / "RUN")
    words = ["sample", str(tmp_path / "RUN"), "--rows", "90", "--seed", "2", "--out", str(tmp_path / "s.csv")]
    with pytest.raises(SystemExit) as left:
        main([*words, "--json"])
    assert not left.value.code
    drawn = read_table(tmp_path / "s.csv", trained.schema)
    write_table(trained.sample(90, seed=2), tmp_path / "whole.csv")
    pd.testing.assert_frame_equal(drawn, read_table(tmp_path / "whole.csv", trained.schema))
