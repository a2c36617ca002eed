"""Public data sets with hand-written public schemas, for the experiments and the tests.

Categories come from the publishers' documentation, and so do bounds where it states any; the others (weights,
incomes, vital signs) are round numbers chosen wide, for data that are public anyway. All are read
from the folder that the environment variable FEDSYNTH_DATA names.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd

from fedsynth.data.image import read_images
from fedsynth.data.rand_health import words, yes_no
from fedsynth.data.schema import Column, Schema
from fedsynth.data.table_files import read_table
from fedsynth.errors import BadInput, nearest
from fedsynth.rng import Rng

_EDUCATION = (
    "Preschool 1st-4th 5th-6th 7th-8th 9th 10th 11th 12th HS-grad Some-college Assoc-voc Assoc-acdm "
    "Bachelors Masters Prof-school Doctorate"
)
_WORK = "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked"
_MARRIAGE = (
    "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse"
)
_OCCUPATION = (
    "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
    "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv "
    "Armed-Forces"
)
_RELATION = "Wife Own-child Husband Not-in-family Other-relative Unmarried"
_RACE = "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black"
_COUNTRY = (
    "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India Japan Greece "
    "South China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland France "
    "Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand "
    "Yugoslavia El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands"
)
_GARMENTS = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip


_EEG_POINTS = [f"X{number}" for number in range(1, 179)]


def data_folder() -> Path | None:
    """The folder that FEDSYNTH_DATA names, or `shared/data` beside the checkout; None if there is none."""
    folder = Path(os.environ.get("FEDSYNTH_DATA", "../shared/data"))
    return folder if folder.is_dir() else None


def dataset_file(name: str) -> Path:
    """The path of a data set; refused with what to set if it is not there."""
    folder = data_folder()
    if folder is None or not (folder / name).is_file():
        place = os.environ.get("FEDSYNTH_DATA", "not set")
        raise BadInput(
            f"data set {name!r} not found (FEDSYNTH_DATA is {place}); set it to the folder that holds it"
        )
    return folder / name


def _known_split(split: str) -> None:
    if split not in ("train", "test"):
        raise BadInput(f"split {split!r}: {nearest(split, ('train', 'test'))}")


def adult(split: str = "train") -> tuple[pd.DataFrame, Schema]:
    """UCI Adult (census income, 1994): 14 columns and the label `income`; `?` is missing."""
    _known_split(split)
    frame = read_table(dataset_file("adult.parquet"))
    chosen = frame[frame["split"] == split].drop(columns="split").reset_index(drop=True)
    for name in ("workclass", "occupation", "native_country"):
        chosen[name] = chosen[name].mask(chosen[name] == "?")
    return chosen, _adult_schema()


def adult_a9a(split: str = "train") -> tuple[pd.DataFrame, Schema]:
    """Adult as LIBSVM's a9a: 123 yes-or-no attributes `a1` to `a123` and the label `income`, as DP-Fed-WAE uses it."""
    _known_split(split)
    with np.load(dataset_file("adult_a9a.npz")) as arrays:
        bits = np.unpackbits(arrays[f"{split}_x"], axis=1)[:, :123]
        label = arrays[f"{split}_y"]
    names = [f"a{number}" for number in range(1, 124)]
    frame = pd.DataFrame(np.array(["no", "yes"])[bits], columns=names)
    frame["income"] = np.array(["<=50K", ">50K"])[label]
    columns = [words(name, "no yes") for name in names]
    return frame, Schema(columns=(*columns, words("income", "<=50K >50K")), label="income")


def _adult_schema() -> Schema:
    columns = (
        Column("age", "integer", min=17, max=90),
        words("workclass", _WORK, missing=True),
        Column("fnlwgt", "integer", min=10_000, max=1_500_000),
        words("education", _EDUCATION, "ordinal"),
        Column("education_num", "integer", min=1, max=16),
        words("marital_status", _MARRIAGE),
        words("occupation", _OCCUPATION, missing=True),
        words("relationship", _RELATION),
        words("race", _RACE),
        words("sex", "Female Male", "binary"),
        Column("capital_gain", "integer", min=0, max=99_999, scale="log"),
        Column("capital_loss", "integer", min=0, max=5_000, scale="log"),
        Column("hours_per_week", "integer", min=1, max=99),
        words("native_country", _COUNTRY, missing=True),
        words("income", "<=50K >50K", "binary"),
    )
    return Schema(columns=columns, label="income")


def heart_disease() -> tuple[pd.DataFrame, Schema]:
    """UCI Heart Disease of four hospitals (column `site`, the client): 920 patients; the label is `disease`.

    A cholesterol or blood pressure of 0 is missing; `disease` is yes where the published `num` is above 0.
    """
    source = read_table(dataset_file("heart_disease_4sites.csv.gz"))
    frame = source.drop(columns="num")
    for name in ("trestbps", "chol"):
        frame[name] = frame[name].mask(frame[name] == 0)
    frame["disease"] = yes_no((source["num"] > 0).astype(int))
    return frame, _heart_schema()


def _heart_schema() -> Schema:
    columns = (
        Column("age", "integer", min=18, max=100),
        Column("sex", "binary"),
        words("cp", "1 2 3 4"),
        Column("trestbps", "integer", min=60, max=250, missing=True),
        Column("chol", "integer", min=50, max=700, missing=True),
        Column("fbs", "binary", missing=True),
        words("restecg", "0 1 2", missing=True),
        Column("thalach", "integer", min=40, max=250, missing=True),
        Column("exang", "binary", missing=True),
        Column("oldpeak", "continuous", min=-5.0, max=10.0, decimals=1, missing=True),
        words("slope", "1 2 3", "ordinal", missing=True),
        words("ca", "0 1 2 3", "ordinal", missing=True),
        words("thal", "3 6 7", missing=True),
        words("disease", "no yes", "binary"),
    )
    return Schema(columns=columns, label="disease", client="site")


def epileptic_seizure(split: str = "train") -> tuple[pd.DataFrame, Schema]:
    """The Bonn EEG in UCI's form: 178 points of a second a row, 23 rows of each of 500 recordings, the clients.

    The label is `seizure`: recordings during one (the publisher's class 1) against the other four classes. A fifth
    of the recordings, drawn once and for all, is the test split. The amplifier had 12 bits, so the bounds are
    public; `bins=1`, since a histogram of single points says nothing of a signal.
    """
    _known_split(split)
    source = read_table(dataset_file("epileptic_seizure.parquet"))
    names = (
        Rng(0).at("held out", "epileptic seizure").numpy().permutation(sorted(source["recording"].unique()))
    )
    in_test = source["recording"].isin(names[: len(names) // 5])
    chosen = source[in_test if split == "test" else ~in_test].reset_index(drop=True)
    frame = chosen[["recording", *_EEG_POINTS]].copy()
    frame["seizure"] = np.where(chosen["y"] == 1, "yes", "no")
    points = tuple(Column(name, "integer", min=-2048, max=2047, bins=1) for name in _EEG_POINTS)
    return frame, Schema(
        columns=(*points, words("seizure", "no yes", "binary")), label="seizure", client="recording"
    )


def mnist(split: str = "train") -> tuple[np.ndarray, np.ndarray, Schema]:
    """MNIST digits: images uint8 [rows, 28, 28], labels "0" to "9", schema."""
    return _idx_set("mnist", split, "digit", tuple("0123456789"))


def fashion_mnist(split: str = "train") -> tuple[np.ndarray, np.ndarray, Schema]:
    """Fashion-MNIST garments: images uint8 [rows, 28, 28], labels by name, schema."""
    return _idx_set("fashion_mnist", split, "garment", _GARMENTS)


def mnist_writers(split: str = "train") -> np.ndarray:
    """Who wrote each MNIST digit (539 writers in the training split): the natural clients."""
    _known_split(split)
    with np.load(dataset_file("mnist/mnist_writers.npz"), allow_pickle=False) as arrays:
        return arrays[f"{split}_writer"]


def svhn(split: str = "train") -> tuple[np.ndarray, np.ndarray, Schema]:
    """House numbers, a sample of 5,000 and 2,000 digits: images uint8 [rows, 32, 32, 3], labels "0" to "9", schema."""
    _known_split(split)
    with np.load(dataset_file("svhn32_subset.npz"), allow_pickle=False) as arrays:
        images, codes = arrays[f"{split}_images"], arrays[f"{split}_labels"]
    digits = tuple("0123456789")
    column = Column("digit", "categorical", categories=digits)
    schema = Schema(kind="image", height=32, width=32, channels=3, columns=(column,), label="digit")
    return images, np.array(digits)[codes], schema


def celeba(split: str = "train") -> tuple[np.ndarray, np.ndarray, Schema]:
    """Faces of 1,800 celebrities: images uint8 [rows, 32, 32, 3], labels "female" and "male", schema.

    The last of each identity's five images is the test split; `celeba_identities` are the natural clients.
    """
    _known_split(split)
    with np.load(dataset_file("celeba32.npz"), allow_pickle=False) as arrays:
        chosen = _is_last(arrays["identity"]) == (split == "test")
        images, male = arrays["images"][chosen], arrays["male"][chosen]
    column = Column("sex", "categorical", categories=("female", "male"))
    schema = Schema(kind="image", height=32, width=32, channels=3, columns=(column,), label="sex")
    return images, np.array(["female", "male"])[male], schema


def celeba_identities(split: str = "train") -> np.ndarray:
    """Whom each image of `celeba` shows."""
    _known_split(split)
    with np.load(dataset_file("celeba32.npz"), allow_pickle=False) as arrays:
        identity = arrays["identity"]
    return identity[_is_last(identity) == (split == "test")]


def _is_last(owners: np.ndarray) -> np.ndarray:
    """Which rows are the last of their owner."""
    _, backwards = np.unique(owners[::-1], return_index=True)
    last = np.zeros(len(owners), dtype=bool)
    last[len(owners) - 1 - backwards] = True
    return last


def _idx_set(
    folder: str, split: str, label: str, classes: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray, Schema]:
    _known_split(split)
    stem = {"train": "train", "test": "t10k"}[split]
    images, codes = read_images(dataset_file(f"{folder}/{stem}-images-idx3-ubyte.gz"))
    assert codes is not None
    column = Column(label, "categorical", categories=classes)
    schema = Schema(kind="image", height=28, width=28, channels=1, columns=(column,), label=label)
    return images, np.array(classes)[codes], schema
