import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.data.column import MOMENTS, TYPES, category_value
from fedsynth.data.encode import Block, numbers_at, positions
from fedsynth.data.image import Image
from fedsynth.data.schema import Column, Schema
from fedsynth.data.table import Table
from fedsynth.data.values import TEXT_DTYPES
from fedsynth.errors import BadInput

TEXTS = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=6)
STYLES = {
    "date": [None, "%d.%m.%Y"],
    "time": [None, "%H:%M:%S", "%I:%M %p"],
    "timestamp": [None, "%d/%m/%Y %H:%M"],
}
SETTINGS = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def as_dtype(column):
    if column.dtype != "category[int8]":
        return column.dtype
    return pd.CategoricalDtype(pd.Index([0, 1], dtype="int8"))


@st.composite
def columns(draw, name):
    kind = draw(st.sampled_from(TYPES[:-1]))  # all but identifiers, which are not encoded
    missing = draw(st.booleans())
    if kind in ("categorical", "ordinal", "text-code"):
        categories = tuple(draw(st.lists(TEXTS, min_size=1, max_size=8, unique=True)))
        return Column(
            name, kind, categories=categories, missing=missing, dtype=draw(st.sampled_from(TEXT_DTYPES))
        )
    if kind == "binary":
        return Column(
            name, kind, missing=missing, dtype=draw(st.sampled_from([None, "bool", "str", "category[int8]"]))
        )
    if kind in MOMENTS:
        grain = draw(
            st.sampled_from(["day", "3 days"] if kind == "date" else ["minute", "15 minutes", "hour"])
        )
        bounds = {} if kind == "time" else {"min": "2019-12-30", "max": "2024-03-01"}
        style = draw(st.sampled_from(STYLES[kind]))
        return Column(name, kind, missing=missing, grain=grain, format=style, **bounds)
    scale, bins = draw(st.sampled_from(["linear", "log"])), draw(st.one_of(st.none(), st.integers(1, 50)))
    low = draw(st.integers(-1000, 1000))
    high = low + draw(st.sampled_from([1, 5, 40, 1000, 1_000_000]))
    return Column(name, kind, min=low, max=high, missing=missing, scale=scale, bins=bins)


def values_of(column):
    if column.type == "integer":
        value = st.integers(int(column.min), int(column.max))
    elif column.type == "continuous":
        value = st.floats(column.min, column.max)
    elif column.moment:
        value = st.integers(0, int(column.bounds[1])).map(column.text)
    elif column.dtype not in (None, *TEXT_DTYPES):
        kind = column.dtype.removeprefix("category[").removesuffix("]")
        value = st.sampled_from(column.labels).map(lambda text: category_value(text, kind))
    else:
        value = st.sampled_from(column.labels)
    return st.one_of(st.none(), value) if column.missing else value


@st.composite
def tables(draw):
    made = tuple(draw(columns(f"column {number}")) for number in range(draw(st.integers(1, 4))))
    rows = draw(st.integers(1, 6))
    data = {
        c.name: pd.Series(draw(st.lists(values_of(c), min_size=rows, max_size=rows)), dtype=object)
        for c in made
    }
    return Schema(columns=made), pd.DataFrame(data)


@SETTINGS
@given(tables())
def test_a_decoded_row_is_the_row_that_was_encoded(table):
    schema, frame = table
    encoding = Table(schema)
    back = encoding.decode(*encoding.encode(frame))
    assert list(back.columns) == list(frame.columns)
    for column in schema.columns:
        was, is_ = frame[column.name], back[column.name]
        assert was.isna().tolist() == is_.isna().tolist()
        kept = ~was.isna()
        if column.type == "continuous":
            # float32 positions: relative to the range, and to the slope of the scale
            tolerance = 2e-6 * (column.max - column.min + 1)
            assert np.allclose(is_[kept].astype(float), was[kept].astype(float), rtol=0, atol=tolerance)
        elif column.moment and column.format is None and column.type != "time":
            assert is_.dtype == "datetime64[s]"
            assert is_[kept].tolist() == pd.to_datetime(was[kept]).tolist()
        else:
            assert is_[kept].tolist() == was[kept].tolist()
            assert (
                column.dtype is None
                or column.missing
                or is_.dtype == pd.Series([], dtype=as_dtype(column)).dtype
            )


@SETTINGS
@given(tables())
def test_each_block_is_one_hot_with_a_position_in_its_bin(table):
    schema, frame = table
    encoding = Table(schema)
    x, _ = encoding.encode(frame)
    assert x.shape == (len(frame), encoding.width) and x.dtype == torch.float32
    for block in encoding.blocks:
        entries = x[:, block.start : block.start + block.size]
        assert (entries.sum(1) == 1).all() and ((entries == 0) | (entries == 1)).all()
        if block.ordered:
            position, bin_ = x[:, block.place].double(), entries.argmax(1)
            present = bin_ < block.bins
            below, above = bin_[present] / block.bins, (bin_[present] + 1) / block.bins
            assert (position[present] >= below - 1e-6).all() and (position[present] <= above + 1e-6).all()


@SETTINGS
@given(tables(), st.integers(0, 2**31))
def test_whatever_a_model_makes_decodes_to_rows_that_fit_the_schema(table, seed):
    schema, _ = table
    encoding = Table(schema)
    x = torch.randn(20, encoding.width, generator=torch.Generator().manual_seed(seed))
    encoding.encode(encoding.decode(x))


@pytest.mark.parametrize(("scale", "values"), [("linear", 2**23), ("log", 2**20), ("log", 100_000)])
def test_the_longest_integer_range_round_trips_through_float32(scale, values):
    column = Column("a", "integer", min=-7, max=values - 8, scale=scale)
    rng = np.random.default_rng(0)
    numbers = np.unique(
        np.r_[-7:1000, values - 1000 : values - 7, rng.integers(0, values - 7, 10_000)]
    ).astype(float)
    at = positions(column, numbers).astype(np.float32)
    assert (numbers_at(column, at) == numbers).all()


def test_a_log_scale_gives_small_amounts_a_bin_of_their_own():
    schema = Schema(columns=(Column("gain", "integer", min=0, max=99_999, scale="log"),))
    x, _ = Table(schema).encode(pd.DataFrame({"gain": [0, 1, 2, 3, 7298, 99_999]}))
    assert x[:, :32].argmax(1).tolist()[-1] == 31
    assert len(set(x[:, :32].argmax(1).tolist())) == 6


def test_an_integer_column_has_no_more_bins_than_values():
    wide = Schema(columns=(Column("a", "integer", min=0, max=4), Column("b", "integer", min=0, max=99)))
    assert [block.bins for block in Table(wide).blocks] == [5, 32]


def test_missing_has_the_last_entry_and_a_neutral_position():
    schema = Schema(columns=(Column("a", "integer", min=0, max=2, missing=True),))
    encoding = Table(schema)
    assert encoding.blocks == (Block("a", start=0, bins=3, missing=True, ordered=True),)
    x, _ = encoding.encode(pd.DataFrame({"a": [None]}))
    assert x.tolist() == [[0, 0, 0, 1, 0.5]]


def test_the_label_becomes_y_and_is_no_part_of_x():
    columns_ = (Column("a", "binary"), Column("grade", "integer", min=2, max=4))
    encoding = Table(Schema(columns=columns_, label="grade"))
    x, y = encoding.encode(pd.DataFrame({"grade": [4, 2], "a": [0, 1]}))
    assert (encoding.width, y.tolist()) == (2, [2, 0])
    assert encoding.decode(x, y)["grade"].tolist() == [4, 2]


def test_without_a_label_there_is_one_class():
    encoding = Table(Schema(columns=(Column("a", "binary"),)))
    _, y = encoding.encode(pd.DataFrame({"a": [0, 1]}))
    assert y.tolist() == [0, 0]


def test_decoded_columns_have_proper_types_and_the_schema_s_order():
    made = (
        Column("b", "continuous", min=0, max=1, decimals=1, missing=True),
        Column("a", "integer", min=0, max=9, missing=True),
        Column("c", "categorical", categories=("x", "y"), missing=True),
    )
    encoding = Table(Schema(columns=made))
    frame = pd.DataFrame({"a": [3, None], "c": [None, "y"], "b": [0.26, None]})
    back = encoding.decode(*encoding.encode(frame))
    assert {name: str(kind) for name, kind in back.dtypes.items()} == {
        "b": "float64",
        "a": "Int64",
        "c": "str",
    }
    assert back["b"].tolist()[0] == 0.3


def test_rounding_never_leaves_the_bounds():
    schema = Schema(columns=(Column("a", "continuous", min=0.26, max=0.74, decimals=1),))
    encoding = Table(schema)
    back = encoding.decode(*encoding.encode(pd.DataFrame({"a": [0.26, 0.5, 0.74, 0.261]})))
    assert back["a"].tolist() == [0.3, 0.5, 0.7, 0.3]
    narrow = Column("a", "continuous", min=0.24, max=0.76, decimals=1)
    assert numbers_at(narrow, np.array([0.0, 1.0])).tolist() == [0.24, 0.76]


def test_an_ordinal_category_lies_in_the_middle_of_its_bin():
    schema = Schema(columns=(Column("a", "ordinal", categories=("low", "high")),))
    x, _ = Table(schema).encode(pd.DataFrame({"a": ["low", "high"]}))
    assert x.tolist() == [[1, 0, 0.25], [0, 1, 0.75]]


def test_everything_that_does_not_fit_is_told_in_one_error():
    made = (Column("a", "integer", min=0, max=9), Column("c", "categorical", categories=("x", "y")))
    with pytest.raises(BadInput) as refused:
        Table(Schema(columns=made)).encode(pd.DataFrame({"a": [12], "c": ["z"]}))
    assert "column 'a': 1 of 1 rows" in str(refused.value) and "'z'" in str(refused.value)


def test_a_diverged_generator_is_refused_in_words():
    encoding = Table(Schema(columns=(Column("a", "binary"),)))
    with pytest.raises(BadInput, match="diverged"):
        encoding.decode(torch.full((1, 2), torch.nan))


def test_rows_alone_never_change_the_encoding():
    schema = Schema(columns=(Column("a", "continuous", min=0, max=10),))
    together, _ = Table(schema).encode(pd.DataFrame({"a": [1.0, 9.0]}))
    alone, _ = Table(schema).encode(pd.DataFrame({"a": [1.0]}))
    assert torch.equal(together[:1], alone)


def image_schema(channels):
    label = Column("kind", "categorical", categories=("cat", "dog"))
    return Schema(kind="image", height=2, width=3, channels=channels, columns=(label,), label="kind")


@pytest.mark.parametrize(("channels", "shape"), [(1, (5, 2, 3)), (3, (5, 2, 3, 3))])
def test_images_and_labels_come_back_from_their_encoding(channels, shape):
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    labels = np.array(["cat", "dog", "dog", "cat", "cat"])
    encoding = Image(image_schema(channels))
    x, y = encoding.encode((images, labels))
    assert x.shape == (5, *encoding.shape) and x.dtype == torch.uint8 and y.dtype == torch.int64
    for form in (x, x / 255):
        back, names = encoding.decode(form, y)
        assert np.array_equal(back, images) and np.array_equal(names, labels)


@pytest.mark.parametrize(
    ("images", "labels", "told"),
    [
        (np.zeros((1, 3, 3), np.uint8), ["cat"], r"shape \(3, 3\)"),
        (np.zeros((1, 2, 3)), ["cat"], "float64"),
        (np.zeros((1, 2, 3), np.uint8), None, "no labels"),
        (np.zeros((1, 2, 3), np.uint8), ["cow"], "'cow'"),
    ],
)
def test_images_that_do_not_fit_are_refused(images, labels, told):
    with pytest.raises(BadInput, match=told):
        Image(image_schema(1)).encode((images, labels))


def test_an_encoding_refuses_a_schema_of_another_kind():
    with pytest.raises(BadInput, match="expected kind 'table'"):
        Table(image_schema(1))
