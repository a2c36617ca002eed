"""A metric: rare groups suffer first from noise, so look at the rarest value of all."""

from __future__ import annotations

from typing import Any

from fedsynth.extend import Metric, Schema


def smallest_category(real: Any, synthetic: Any, schema: Schema) -> float:
    """The share of the rarest real category among the synthetic rows over its share among the real ones, at most 1."""
    columns = [column.name for column in schema.columns if column.categories]
    shares = {name: real[name].value_counts(normalize=True) for name in columns}
    name = min(shares, key=lambda one: float(shares[one].min()))
    rarest = shares[name].idxmin()
    return min(1.0, float((synthetic[name] == rarest).mean()) / float(shares[name].min()))


SMALLEST_CATEGORY = Metric(smallest_category)
