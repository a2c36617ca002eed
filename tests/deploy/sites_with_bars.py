"""The small clients of bars.py at three sites in one process, and a classifier as an ONNX file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from bars import SCHEMA, asked

from fedsynth.data.clients import RawClients, encode_clients
from fedsynth.data.schema import Schema
from fedsynth.deploy.inspection.at_site import AtSite
from fedsynth.deploy.inspection.over_sites import Call
from fedsynth.deploy.link.patience import Patience
from fedsynth.deploy.participation import compose
from fedsynth.deploy.site.site import Holding, Site, SitePolicy
from fedsynth.inspection.plan import ModelSource, hash_of
from fedsynth.inspection.request import Inspection
from fedsynth.inspection.selection import Selection
from fedsynth.privacy.budget import Budget
from fedsynth.recipes.registry import RECIPES
from fedsynth.research.queue_channel import QueueChannel

NAMES = ("ada", "bern", "cern")
AMPLE = Budget(1e6, 1e-5, accountant="rdp")


def classifier(weights: np.ndarray | None = None, shape: tuple[int, ...] = (1, 8, 8)) -> bytes:
    """A model that flattens its rows and multiplies them; usually it finds the brighter side of the bars."""
    import onnx

    if weights is None:
        sides = np.zeros((8, 8, 2))
        sides[:, :4, 0] = sides[:, 4:, 1] = 1.0
        weights = sides.reshape(64, 2)
    helper, numbers = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("Flatten", ["rows"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["scores"]),
    ]
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("rows", numbers, ["n", *shape])],
        [helper.make_tensor_value_info("scores", numbers, ["n", weights.shape[1]])],
        [onnx.numpy_helper.from_array(weights.astype(np.float32), "weights")],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def rows_of(data: Any, own: np.ndarray) -> Any:
    """These rows of a table, of images with labels, or of texts."""
    if isinstance(data, pd.DataFrame):
        return data[own].reset_index(drop=True)
    texts = isinstance(data[0], str)
    if texts:
        return tuple(np.array(data, dtype=object)[own])
    return tuple(None if part is None else part[own] for part in data)


def dealt(raw: RawClients) -> dict[str, RawClients]:
    """The clients in three parts, in order."""
    parts, each = {}, raw.count // len(NAMES)
    for number, name in enumerate(NAMES):
        own = (raw.owner >= number * each) & (raw.owner < (number + 1) * each)
        parts[name] = RawClients(
            raw.owner[own] - number * each,
            each,
            tuple(f"{name}-{client}" for client in range(each)),
            rows_of(raw.data, own),
        )
    return parts


def allowing(**changes: Any) -> SitePolicy:
    """A policy that allows inspections, changed as a test likes."""
    usual = SitePolicy(
        AMPLE, tuple(RECIPES), ("clear",), minimum_cohort=1, without_privacy=True, inspect=True
    )
    return replace(usual, **changes)


def sites_of(
    raw: RawClients,
    folder: Path,
    schema: Schema = SCHEMA,
    *,
    seed: int | None = 1,
    policies: dict[str, SitePolicy] | None = None,
) -> dict[str, Site]:
    """Three sites with a third of the clients each."""
    made = {}
    for name, part in dealt(raw).items():
        policy = (policies or {}).get(name, allowing())
        holding = Holding(encode_clients(part, schema), part.names, schema, part)
        look = AtSite(holding, policy)
        made[name] = Site(holding, policy, folder / name, compose, seed=seed, look=look)
    return made


def call_to(
    sites: dict[str, Site],
    inspection: Inspection | None = None,
    *,
    content: bytes = b"",
    entry_point: str = "",
    minimum: int = 3,
    news: list[tuple[str, str]] | None = None,
) -> Call:
    """A call of all of them; `news` hears what happens at sites."""
    heard = [] if news is None else news
    return Call(
        QueueChannel({name: site.handle for name, site in sites.items()}),
        "look",
        inspection or asked(model=None, models=0),
        ModelSource(hash_of(content) if content else "", entry_point),
        content,
        minimum,
        Patience(600.0, 300.0),
        lambda site, version, what: heard.append((site, what)),
    )


def by_rule(column: str, is_: str, value: object, **more: object) -> Selection:
    return Selection.parse(
        {"by": "example", "criterion": "rule", "column": column, "is": is_, "value": value, **more}
    )
