"""Releases as data: dp-accounting's events, two of ours, and their JSON form for the ledger.

In fedsynth a noise multiplier is always the noise's standard deviation (for Laplace, its scale) divided by
the clip bound S, whatever the adjacency. Only `pairs.py` turns that into what the library expects.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

import attr
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    RandomizedResponseDpEvent,
    SampledWithoutReplacementDpEvent,
    SampledWithReplacementDpEvent,
    SelfComposedDpEvent,
    SingleEpochTreeAggregationDpEvent,
    ZCDpEvent,
)
from dp_accounting.dp_event import RepeatAndSelectDpEvent

from fedsynth.errors import BadInput, nearest

_SMOOTHING_STEPS = 3.0
_LEAST_STEPS = 8.0


@attr.s(frozen=True, slots=True, auto_attribs=True)
class EpsilonDeltaDpEvent(DpEvent):
    """Any mechanism known by its (epsilon, delta) alone, for the adjacency of the statement it is used in.

    For local mechanisms (SignDS, k-ary randomized response) epsilon must hold between any two inputs.
    """

    epsilon: float
    delta: float = 0.0


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ExponentialMechanismDpEvent(DpEvent):
    """The exponential mechanism (or report-noisy-max) run at `epsilon`; pure differential privacy."""

    epsilon: float


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ReplaceOneDpEvent(DpEvent):
    """One release that is charged under replace-one, whatever the adjacency of the total that it is part of.

    Only for accounting: a ledger holds the release itself.
    """

    event: DpEvent


@attr.s(frozen=True, slots=True, auto_attribs=True)
class DiscreteGaussianDpEvent(DpEvent):
    """Discrete Gaussian noise on a fixed-point grid, in any number of dimensions.

    `noise_multiplier` is the standard deviation divided by the clip bound, which must hold after the rounding
    to the grid; `steps` is the standard deviation counted in grid steps.
    """

    noise_multiplier: float
    steps: float

    def continuous(self) -> GaussianDpEvent:
        """A continuous Gaussian that costs at least as much.

        Continuous noise of variance s^2 - 9 (in grid steps), rounded by a discrete Gaussian of deviation 3,
        is the discrete Gaussian of variance s^2 up to a factor of exp(1e-75) a coordinate (smoothing lemma of
        Micciancio and Regev 2007). Rounding is post-processing, so the continuous part bounds the cost.

        >>> DiscreteGaussianDpEvent(1.0, steps=2.0**16).continuous().noise_multiplier
        0.999999...
        """
        if not self.steps >= _LEAST_STEPS:
            raise BadInput(
                f"a discrete Gaussian of {self.steps:g} grid steps: at least {_LEAST_STEPS:g} are needed for "
                "its cost to be bounded by the continuous one; use a finer grid"
            )
        return GaussianDpEvent(self.noise_multiplier * math.sqrt(1.0 - (_SMOOTHING_STEPS / self.steps) ** 2))


_TYPES: dict[str, type[DpEvent]] = {
    kind.__name__: kind
    for kind in (
        NoOpDpEvent,
        NonPrivateDpEvent,
        GaussianDpEvent,
        DiscreteGaussianDpEvent,
        LaplaceDpEvent,
        EpsilonDeltaDpEvent,
        ExponentialMechanismDpEvent,
        RandomizedResponseDpEvent,
        ZCDpEvent,
        SingleEpochTreeAggregationDpEvent,
        RepeatAndSelectDpEvent,
        PoissonSampledDpEvent,
        SampledWithoutReplacementDpEvent,
        SampledWithReplacementDpEvent,
        SelfComposedDpEvent,
        ComposedDpEvent,
    )
}


def event_to_json(event: DpEvent) -> dict[str, Any]:
    """The event as plain JSON values; `event_from_json` gives back an equal event.

    >>> event_to_json(SelfComposedDpEvent(PoissonSampledDpEvent(0.2, GaussianDpEvent(1.0)), 30))
    {'type': 'SelfComposedDpEvent', 'event': {'type': 'PoissonSampledDpEvent', 'sampling_probability': 0.2,
     'event': {'type': 'GaussianDpEvent', 'noise_multiplier': 1.0}}, 'count': 30}
    """
    name = type(event).__name__
    if _TYPES.get(name) is not type(event):
        raise BadInput(f"event {name} cannot be written to a ledger; {nearest(name, _TYPES)}")
    fields = attr.fields(type(event))
    return {"type": name} | {field.name: _to_plain(getattr(event, field.name)) for field in fields}


def event_from_json(data: Mapping[str, Any]) -> DpEvent:
    """The event that `event_to_json` wrote.

    >>> event_from_json({"type": "LaplaceDpEvent", "noise_multiplier": 2.0})
    LaplaceDpEvent(noise_multiplier=2.0)
    """
    name = str(data.get("type"))
    if name not in _TYPES:
        raise BadInput(f"event type {name!r} is not known; {nearest(name, _TYPES)}")
    values = {key: _from_plain(value) for key, value in data.items() if key != "type"}
    try:
        return _TYPES[name](**values)
    except TypeError as error:
        expected = ", ".join(field.name for field in attr.fields(_TYPES[name])) or "no fields"
        raise BadInput(f"event {name} has fields {sorted(values)}; expected {expected}") from error


def _to_plain(value: Any) -> Any:
    if isinstance(value, DpEvent):
        return event_to_json(value)
    if isinstance(value, (list, tuple)):
        return [_to_plain(item) for item in value]
    if isinstance(value, Integral):
        return int(value)
    return float(value) if math.isfinite(value) else repr(float(value))


def _from_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return event_from_json(value)
    if isinstance(value, list):
        return [_from_plain(item) for item in value]
    return float(value) if value in ("inf", "-inf", "nan") else value


def repeat(event: DpEvent, count: int) -> DpEvent:
    """The event `count` times; nothing for 0.

    >>> repeat(GaussianDpEvent(1.0), 1)
    GaussianDpEvent(noise_multiplier=1.0)
    """
    if count < 0 or count != int(count):
        raise BadInput(f"count={count}: a release happens a whole number of times, 0 or more")
    if count == 0:
        return NoOpDpEvent()
    return event if count == 1 else SelfComposedDpEvent(event, int(count))


def compose(events: Iterable[DpEvent]) -> DpEvent:
    """All the events, one after the other, as one event.

    >>> compose([])
    NoOpDpEvent()
    """
    listed = [event for event in events if not isinstance(event, NoOpDpEvent)]
    if not listed:
        return NoOpDpEvent()
    return listed[0] if len(listed) == 1 else ComposedDpEvent(listed)


def replaced(event: DpEvent) -> DpEvent:
    """The same releases, each charged under replace-one.

    >>> replaced(SelfComposedDpEvent(GaussianDpEvent(1.0), 4)).event
    ReplaceOneDpEvent(event=GaussianDpEvent(noise_multiplier=1.0))
    """
    return compose(repeat(ReplaceOneDpEvent(leaf), count) for leaf, count in flatten(event))


def flatten(event: DpEvent) -> list[tuple[DpEvent, int]]:
    """Single releases and how often each happened; equal ones are counted together.

    >>> flatten(ComposedDpEvent([GaussianDpEvent(1.0), SelfComposedDpEvent(GaussianDpEvent(1.0), 4)]))
    [(GaussianDpEvent(noise_multiplier=1.0), 5)]
    """
    counts: dict[str, tuple[DpEvent, int]] = {}
    for leaf, count in _walk(event, 1):
        key = repr(leaf)
        counts[key] = (leaf, count + counts.get(key, (leaf, 0))[1])
    return [(leaf, count) for leaf, count in counts.values() if count > 0]


def noise_apart(event: DpEvent) -> tuple[str, float]:
    """The form of one release and its noise: of two of one form, the one with more noise costs no more.

    >>> noise_apart(PoissonSampledDpEvent(0.2, GaussianDpEvent(1.5)))[1]
    1.5
    """
    if isinstance(event, (PoissonSampledDpEvent, SampledWithoutReplacementDpEvent, ReplaceOneDpEvent)):
        form, noise = noise_apart(event.event)
        return f"{attr.evolve(event, event=NoOpDpEvent())} of {form}", noise
    if isinstance(event, (GaussianDpEvent, LaplaceDpEvent)):
        return type(event).__name__, float(event.noise_multiplier)
    return repr(event), 0.0


def _walk(event: DpEvent, count: int) -> Iterable[tuple[DpEvent, int]]:
    if isinstance(event, NoOpDpEvent):
        return
    if isinstance(event, SelfComposedDpEvent):
        if event.count < 0 or event.count != int(event.count):
            raise BadInput(f"count={event.count}: a release happens a whole number of times, 0 or more")
        yield from _walk(event.event, count * int(event.count))
    elif isinstance(event, ComposedDpEvent):
        for part in event.events:
            yield from _walk(part, count)
    else:
        yield event, count
