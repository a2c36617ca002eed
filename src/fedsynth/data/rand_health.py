"""The table of the demo: health insurance records that come with statsmodels, and their public schema."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from fedsynth.data.schema import Column, Schema
from fedsynth.data.table_files import read_table
from fedsynth.errors import BadInput
from fedsynth.rng import Rng

TEST_SHARE = 0.2


def words(name: str, text: str, kind: str = "categorical", *, missing: bool = False) -> Column:
    """Return a column whose categories are the words of a text."""
    return Column(name, kind, categories=tuple(text.split()), missing=missing)


def rand_health() -> tuple[pd.DataFrame, Schema]:
    """The RAND Health Insurance Experiment: 20,190 person-years of 5,912 people, who are the natural clients.

    The copy of Cameron and Trivedi (2005) that comes with statsmodels (extra `demo`), with its codes written
    out. The label is whether the person saw a doctor in that year (number of visits above 0), the first stage
    of the experiment's two-part analysis; counts and costs of visits are left out because they give it away.
    Where the publisher imputed a share for a yes-or-no answer, the answer is missing here.
    """
    try:
        from statsmodels.datasets import randhie
    except ImportError:
        raise BadInput(
            "the demo data needs statsmodels; install it with: pip install 'fedsynth[demo]'"
        ) from None
    source = read_table(Path(randhie.__file__).parent / "src" / "randhie.csv")
    health = np.select(
        [source.hlthp == 1, source.hlthf == 1, source.hlthg == 1], ["poor", "fair", "good"], "excellent"
    )
    frame = pd.DataFrame(
        {
            "person": source.zper.astype(str),
            "site": source.site.astype(str),
            "year": source.year.astype("Int64"),
            "coinsurance": source.coins.astype(str),
            "individual_deductible": yes_no(source.idp),
            "age": np.floor(source.xage).astype("Int64"),
            "sex": source.female.map({0: "male", 1: "female"}),
            "black": yes_no(source.black),
            "education_years": source.educdec.round().astype("Int64"),
            "family_size": source.num.astype("Int64"),
            "family_income": source.income.round().astype("Int64"),
            "health": health,
            "physical_limitation": yes_no(source.physlm),
            "chronic_diseases": source.disea.round(1),
            "mental_health": source.mhi.round(1),
            "saw_doctor": yes_no((source.mdvis > 0).astype(int)),
        }
    )
    return frame, _rand_schema()


def yes_no(values: pd.Series) -> pd.Series:
    """Return 0 and 1 as no and yes, everything else as missing."""
    return values.map({0: "no", 1: "yes"})


def _rand_schema() -> Schema:
    columns = (
        words("site", "1 2 3 4 5 6"),
        Column("year", "integer", min=1, max=5),
        words("coinsurance", "0 25 50 95 100", "ordinal"),
        words("individual_deductible", "no yes", "binary"),
        Column("age", "integer", min=0, max=67),
        words("sex", "male female", "binary"),
        words("black", "no yes", "binary", missing=True),
        Column("education_years", "integer", min=0, max=25, missing=True),
        Column("family_size", "integer", min=1, max=15),
        Column("family_income", "integer", min=0, max=30_000),
        words("health", "poor fair good excellent", "ordinal"),
        words("physical_limitation", "no yes", "binary", missing=True),
        Column("chronic_diseases", "continuous", min=0.0, max=60.0, decimals=1),
        Column("mental_health", "continuous", min=0.0, max=100.0, decimals=1),
        words("saw_doctor", "no yes", "binary"),
    )
    return Schema(columns=columns, label="saw_doctor", client="person")


def hold_out(
    frame: pd.DataFrame, client: str, clients: int | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return training and test rows of a table (of `clients` clients, or all); nobody has rows in both."""
    names = Rng(0).at("held out").numpy().permutation(frame[client].unique())[:clients]
    test_names = set(names[: max(1, round(len(names) * TEST_SHARE))])
    ours = frame[frame[client].isin(set(names))]
    tested = ours[client].isin(test_names)
    return ours[~tested].reset_index(drop=True), ours[tested].reset_index(drop=True)
