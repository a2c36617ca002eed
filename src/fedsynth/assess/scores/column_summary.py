"""Each column in a few numbers, and alerts: what somebody who looks at one line a column should know."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsynth.data.column import Column

MOSTLY = 0.5  # missing, from which on an alert is given
DIFFERENT = 0.1  # of shares: a difference from which on an alert is given
_FEW = 32  # different numbers, which could be categories
_MOST_LOST = 5  # values that are named


def column_summary(column: Column, numbers: np.ndarray) -> dict[str, Any]:
    """How many different values there are, and lowest, middle, mean, highest, or the most frequent value.

    >>> column_summary(Column("ill", "binary", categories=("no", "yes")), np.array([0.0, 0.0, 1.0, np.nan]))
    {'distinct': 2, 'frequent': 'no', 'share': 0.6666666666666666}
    """
    there = numbers[~np.isnan(numbers)]
    values, counts = np.unique(there, return_counts=True)
    if not len(there):
        return {"distinct": 0}
    if not column.numeric:
        place = int(counts.argmax())
        frequent = column.labels[int(values[place])]
        return {"distinct": len(values), "frequent": frequent, "share": float(counts[place] / len(there))}
    low, middle, high = (float(each) for each in np.quantile(there, [0, 0.5, 1]))
    spelled = [
        column.text(each) if column.moment else each for each in (low, middle, float(there.mean()), high)
    ]
    names = ("lowest", "middle", "mean", "highest")
    return {
        "distinct": len(values),
        **dict(zip(names, spelled, strict=True)),
        "deviation": float(there.std()),
    }


def column_alerts(column: Column, real: np.ndarray | None, synthetic: np.ndarray) -> list[str]:
    """Sentences on a column that is constant, mostly missing, or has lost or gained values; without `real` on it alone.

    >>> sex = Column("sex", "categorical", categories=("f", "m", "other"))
    >>> column_alerts(sex, np.array([0.0, 1.0, 2.0, 1.0]), np.array([1.0, 1.0, 1.0, 1.0]))
    ['constant in the synthetic rows only', '2 rare values lost: f, other (50% of the real rows)']
    """
    absent = float(np.isnan(synthetic).mean())
    constant = _constant(synthetic)
    if real is None:
        return [
            *(["constant"] if constant else []),
            *([f"mostly missing ({absent:.0%})"] if absent >= MOSTLY else []),
        ]
    alerts = []
    if constant:
        alerts.append("constant" if _constant(real) else "constant in the synthetic rows only")
    missing = float(np.isnan(real).mean())
    if missing >= MOSTLY or absent >= MOSTLY:
        alerts.append(f"mostly missing (real {missing:.0%}, synthetic {absent:.0%})")
    elif abs(missing - absent) >= DIFFERENT:
        alerts.append(f"missing more or less often (real {missing:.0%}, synthetic {absent:.0%})")
    return [*alerts, *_filled(column, real, synthetic), *_lost(column, real, synthetic)]


def _constant(numbers: np.ndarray) -> bool:
    there = numbers[~np.isnan(numbers)]
    return bool(len(there)) and bool(np.ptp(there) == 0)


def _filled(column: Column, real: np.ndarray, synthetic: np.ndarray) -> list[str]:
    """Numbers that take a few values in real rows and any in synthetic ones, which gives every row away."""
    few, many = (len(np.unique(numbers[~np.isnan(numbers)])) for numbers in (real, synthetic))
    if not column.numeric or column.moment or few > _FEW or many <= 10 * few:
        return []
    return [
        f"{few} different values in the real rows, {many:,} in the synthetic ones: if the few are publicly known, "
        "declare them (ordinal, with categories)"
    ]


def _lost(column: Column, real: np.ndarray, synthetic: np.ndarray) -> list[str]:
    """Categories that real rows have and synthetic ones do not."""
    if column.numeric:
        return []
    there = real[~np.isnan(real)]
    lost = np.setdiff1d(there, synthetic)
    if not len(lost):
        return []
    share = float(np.isin(there, lost).mean())
    named = ", ".join(column.labels[int(value)] for value in lost[:_MOST_LOST])
    more = f" and {len(lost) - _MOST_LOST} more" if len(lost) > _MOST_LOST else ""
    values = "rare value" if len(lost) == 1 else "rare values"
    return [f"{len(lost)} {values} lost: {named}{more} ({100 * share:.2g}% of the real rows)"]
