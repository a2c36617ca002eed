"""The plan as a picture: epsilon against clients, rounds and noise. The one file of the plan that needs matplotlib."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

from fedsynth.errors import BadInput
from fedsynth.privacy.accountant import COARSE, answer
from fedsynth.privacy.events import repeat
from fedsynth.privacy.planning import PlanRow, projected_rows

_WIDE = 200.0  # an axis over more than this factor has a number at each power of ten only


@dataclass(frozen=True)
class Panel:
    """One plot: named curves of epsilon over something."""

    title: str
    axis: str
    curves: Mapping[str, Sequence[tuple[float, float]]]


def check_name(path: Path) -> None:
    """Refuse a file that the plot cannot be written to."""
    if path.suffix not in (".png", ".html"):
        raise BadInput(f"--plot {path}: expected a name that ends with .png or .html")


def panels_of(rows: Sequence[PlanRow]) -> list[Panel]:
    """Epsilon as one thing changes and the others stay; coarse, which errs upwards."""
    row = next((row for row in rows if (row.unit, row.trust) == ("client", "central")), rows[0])
    rounds = sorted({max(1, round(row.rounds * 2.0**power)) for power in range(-4, 3)})
    noises = [row.noise_multiplier * 2.0 ** (power / 2) for power in range(-2, 5)]
    return [
        *_population_panel(row),
        Panel(
            "more rounds", "rounds", {"central": [(n, _cost(row, n, row.noise_multiplier)) for n in rounds]}
        ),
        Panel(
            "more noise", "noise multiplier", {"central": [(z, _cost(row, row.rounds, z)) for z in noises]}
        ),
    ]


def _population_panel(row: PlanRow) -> list[Panel]:
    if row.unit != "client":
        return []
    moved = projected_rows(row, [row.clients * 4**power for power in range(6)])
    by_trust = {
        f"{trust} (projection)": [(point.clients, point.epsilon) for point in moved if point.trust == trust]
        for trust in ("central", "local")
    }
    return [Panel(f"{row.recipe}: more clients, same noise in the mean", "clients", by_trust)]


def _cost(row: PlanRow, rounds: int, noise: float) -> float:
    event = repeat(PoissonSampledDpEvent(row.rate, GaussianDpEvent(noise)), rounds)
    return answer(event, row.delta, precision=COARSE).epsilon


def save_plot(panels: Sequence[Panel], budget: float, path: Path) -> None:
    """Write the panels side by side to a PNG file, or to an HTML page that holds it."""
    check_name(path)
    image = _png(panels, budget)
    if path.suffix == ".png":
        path.write_bytes(image)
        return
    data = base64.b64encode(image).decode()
    path.write_text(
        '<!doctype html><meta charset="utf-8"><title>fedsynth plan</title>'
        f'<img alt="epsilon against clients, rounds and noise" src="data:image/png;base64,{data}">\n'
    )


def _png(panels: Sequence[Panel], budget: float) -> bytes:
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
    except ImportError as error:
        raise BadInput("--plot needs matplotlib; install it with: pip install 'fedsynth[report]'") from error
    figure = Figure(figsize=(4.6 * len(panels), 3.8), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for name, points in panel.curves.items():
            axes.plot([x for x, _ in points], [y for _, y in points], marker="o", markersize=3, label=name)
        axes.axhline(budget, color="0.5", linestyle="--", linewidth=1, label="budget")
        axes.set(title=panel.title, xlabel=panel.axis, ylabel="epsilon", xscale="log", yscale="log")
        for axis in (axes.xaxis, axes.yaxis):  # 3,000, not 3x10^3, and few enough to be read
            low, high = axis.get_view_interval()
            axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < _WIDE else (1,)))
            axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
            axis.set_minor_formatter(NullFormatter())
        axes.legend(fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=140)
    return buffer.getvalue()
