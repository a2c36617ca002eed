import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from fedsynth.data.clock import UNITS
from fedsynth.data.column import SCALES, TYPES, Column
from fedsynth.data.linked import _KEYS
from fedsynth.data.schema import PROVENANCES, Schema

PAGE = (Path(__file__).parents[2] / "docs" / "schema.md").read_text(encoding="utf-8")
INTERNAL = {"inside"}  # set by the reader of several tables


@pytest.mark.parametrize(
    "name",
    sorted(
        {
            *({item.name for item in fields(Schema)} - INTERNAL),
            *(item.name for item in fields(Column)),
            *_KEYS,
            *TYPES,
            *SCALES,
            *UNITS,
            *PROVENANCES,
        }
    ),
)
def test_the_page_names_every_field_and_word_that_a_schema_accepts(name):
    assert f"`{name}`" in PAGE


def test_every_schema_on_the_page_is_accepted():
    blocks = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        assert Schema.from_dict(json.loads(block)).columns
