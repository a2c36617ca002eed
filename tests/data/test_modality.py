import numpy as np
import pandas as pd
import pytest

from fedsynth.data.modality import for_kind, kinds_of, modality_of
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from samples import IMAGE, TABLE, TEXT, make_frame

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 8), dtype=np.uint8)
DATA = {
    "table": (TABLE, make_frame(np.arange(6)).drop(columns="owner")),
    "image": (IMAGE, (IMAGES, np.array(["0", "1"] * 3))),
    "text": (TEXT, ("see the cat", "run", "home", "red cat run", "the home", "see")),
}


def same(one, other) -> bool:
    if isinstance(one, pd.DataFrame):
        return one.astype(str).equals(other.astype(str))
    if isinstance(one, tuple) and isinstance(one[0], np.ndarray):
        return all((np.asarray(a) == np.asarray(b)).all() for a, b in zip(one, other, strict=True))
    return list(one) == list(other)


@pytest.mark.parametrize("kind", DATA)
def test_data_come_back_from_a_file_from_their_parts_and_from_their_encoding(kind, tmp_path):
    written, data = DATA[kind]
    modality = modality_of(Schema.from_dict(written))
    path = tmp_path / f"data{modality.ending}"
    modality.write(data, path)
    assert modality.fits(data) and modality.size(data) == 6 and same(modality.read(path), data)
    parts = [modality.take(data, np.arange(2)), modality.take(data, np.arange(6) > 1)]
    x, y = modality.encode(modality.join(parts))
    whole = modality.encode(data)
    assert (x == whole[0]).all() and (y == whole[1]).all()
    again = modality.encode(modality.decode(x, y))
    assert (again[0] == x).all() and (again[1] == y).all()
    assert modality.random(4, np.random.default_rng(0)).shape[1:] == x.shape[1:]


def test_what_a_room_lacks_for_a_kind_of_data_is_named():
    schema = Schema.from_dict(TEXT)
    assert kinds_of(schema) == ("text",) and for_kind({"text": 1, "table": 2}, schema, "scores") == 1
    with pytest.raises(BadInput, match="kind=text: there are no scores for it; expected one of table"):
        for_kind({"table": 2}, schema, "scores")
    with pytest.raises(BadInput, match="unknown kind 'tabel', did you mean 'table'"):
        Schema.from_dict({**TABLE, "kind": "tabel"})
