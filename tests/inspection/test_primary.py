import numpy as np
import pandas as pd
import pytest
from bars import SCHEMA, bars, brighter_side
from sites_with_bars import classifier

from fedsynth.data.clients import RawClients
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.inspection.primary import Installed, class_scores, primary_from, row_scores

pytest.importorskip("onnx", reason="ONNX files are made by onnx")
pytest.importorskip("onnxruntime", reason="ONNX files are run by onnxruntime (extra inspect)")


@pytest.fixture(name="classifier")
def classifier_file(tmp_path):
    sides = np.zeros((8, 8, 2))
    sides[:, :4, 0] = sides[:, 4:, 1] = 255 / 32
    (tmp_path / "sides.onnx").write_bytes(classifier(sides.reshape(64, 2)))
    return tmp_path / "sides.onnx"


def test_an_onnx_file_scores_images_as_the_same_function_does(classifier):
    raw = bars(0.5)
    found = class_scores(primary_from(SCHEMA, onnx=str(classifier)), raw, 2)
    np.testing.assert_allclose(found, brighter_side(raw.data[0]), rtol=1e-4)


def test_an_onnx_file_of_a_table_gets_encoded_rows_without_the_label(tmp_path):
    schema = Schema.from_dict(
        {
            "version": 1,
            "label": "ill",
            "columns": [
                {"name": "sex", "type": "categorical", "categories": ["F", "M"]},
                {"name": "ill", "type": "binary", "categories": ["no", "yes"]},
            ],
        }
    )
    (tmp_path / "row.onnx").write_bytes(classifier(np.array([[1.0], [-1.0]]), (2,)))
    rows = RawClients(
        np.zeros(2, dtype=np.int64), 1, ("",), data=pd.DataFrame({"sex": ["F", "M"], "ill": ["no", None]})
    )
    scores = row_scores(primary_from(schema, onnx=str(tmp_path / "row.onnx")), rows)
    assert scores.tolist() == [1.0, -1.0]


def test_files_that_are_no_models_are_refused(tmp_path):
    (tmp_path / "text.onnx").write_text("import os")
    with pytest.raises(BadInput, match="cannot be read as an ONNX model"):
        primary_from(SCHEMA, onnx=str(tmp_path / "text.onnx"))
    with pytest.raises(BadInput, match="no such file"):
        primary_from(SCHEMA, onnx=str(tmp_path / "none.onnx"))


def test_a_name_that_is_not_installed_is_refused():
    with pytest.raises(BadInput, match="nothing of that name is installed"):
        primary_from(SCHEMA, entry_point="nobody's model")
    with pytest.raises(BadInput, match="expected one of onnx"):
        primary_from(SCHEMA)


@pytest.mark.parametrize("answer", [np.zeros((480, 3)), np.zeros(480), np.full((480, 2), np.nan)])
def test_scores_that_are_not_one_a_class_are_refused(answer):
    with pytest.raises(BadInput, match="expected"):
        class_scores(Installed(lambda _: answer, SCHEMA), bars(0.0), 2)
