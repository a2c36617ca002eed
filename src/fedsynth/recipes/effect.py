"""Settings that change nothing in a composition are refused: a user who sets one believes that it does something."""

from __future__ import annotations

import math
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from fedsynth.errors import BadInput, FedsynthError
from fedsynth.recipes.registry import Argument, Recipe
from fedsynth.recipes.task import Task

_PLAIN = (str, bytes, int, float, complex, type(None), Enum, type, types.BuiltinFunctionType, torch.dtype)
_RECORDS = 10_000  # stands for a number that is not known yet
_CALIBRATED = ("rounds", "noise", "budget", "records")  # fedsynth finds these values itself, or must be told


def refuse_without_effect(recipe: Recipe, task: Task, changes: Mapping[str, Any]) -> None:
    """Refuse each changed setting of which no value would change the algorithm that is composed for this task.

    A run without privacy may have the settings of the private run that it is compared with.
    """
    known, values = recipe.arguments(), recipe.values(changes)
    tasks = [task] if task.private or not recipe.promises else [task, replace(task, private=True)]
    ignored = [
        f"{name}={values[name]}: {recipe.name} does not use it for {_composition(task)} ({known[name].help})"
        for name in changes
        if values[name] != known[name].default
        and known[name].role not in _CALIBRATED
        and not any(has_effect(recipe, one, values, name) for one in tasks)
    ]
    if ignored:
        raise BadInput("; ".join(ignored) + "; leave it out")


def has_effect(recipe: Recipe, task: Task, values: Mapping[str, Any], name: str) -> bool:
    """Whether another value of this setting gives another algorithm, or none."""
    settled = {**values, **recipe.with_role("noise", 1.0), **recipe.with_role("budget", 1.0)}
    settled |= recipe.with_role("records", recipe.value_of("records", values) or _RECORDS)
    usual = fingerprint(recipe.build(task, settled))
    for value in _others(recipe.arguments()[name], values[name]):
        try:
            other = recipe.build(task, {**settled, name: value})
        except (FedsynthError, ValueError):
            return True  # it was read, and does not fit
        if fingerprint(other) != usual:
            return True
    return False


def _others(argument: Argument, value: Any) -> Iterator[Any]:
    """Some other values of a setting, within its range."""
    candidates = [argument.default, *argument.choices]
    if isinstance(value, tuple):
        candidates += [(*value, *value), tuple(2 * one for one in value)]
    elif not isinstance(value, str):
        least = -math.inf if argument.least is None else argument.least
        most = math.inf if argument.most is None else argument.most
        near = [value + 1, 2 * value, value // 2, value / 2, value + 0.5, 10 * value + 10, max(least, 0)]
        near += [most] if math.isfinite(most) else []  # the only other value of a narrow range
        whole = (one for one in near if argument.type is float or one == int(one))
        candidates += [argument.type(one) for one in whole if least <= one <= most]
    return (one for one in candidates if one != value)


def _composition(task: Task) -> str:
    private = f"unit={task.unit}, trust={task.trust}" if task.private else "no privacy"
    return f"{task.kind}s with {private} over {task.transport}"


def fingerprint(thing: Any, within: tuple[int, ...] = ()) -> Any:
    """A value that is equal for two objects built by the same code from the same numbers.

    Networks count by their layers and shapes: their first weights are drawn elsewhere. `within` are the objects around.
    """
    if isinstance(thing, _PLAIN) or id(thing) in within:
        return repr(thing) if isinstance(thing, _PLAIN) else "around"
    inside = partial(fingerprint, within=(*within, id(thing)))
    if isinstance(thing, torch.Tensor):
        return (tuple(thing.shape), thing.detach().cpu().numpy().tobytes())
    if isinstance(thing, np.ndarray):
        return (thing.shape, thing.tobytes())
    if isinstance(thing, Mapping):
        return tuple((inside(key), inside(value)) for key, value in thing.items())
    if isinstance(thing, (list, tuple, set, frozenset)):
        return tuple(map(inside, thing))
    if isinstance(thing, nn.Module):
        return (repr(thing), tuple((name, tuple(one.shape)) for name, one in thing.named_parameters()))
    return (type(thing).__qualname__, *map(inside, _contents(thing)))


def _contents(thing: Any) -> list[Any]:
    """List the contents of an object, or of a function and what it encloses."""
    if isinstance(thing, types.MethodType):
        return [thing.__func__.__qualname__, thing.__self__]
    if isinstance(thing, partial):
        return [thing.func, thing.args, thing.keywords]
    if isinstance(thing, types.FunctionType):
        return [
            thing.__qualname__,
            thing.__defaults__,
            *(cell.cell_contents for cell in thing.__closure__ or ()),
        ]
    if is_dataclass(thing):
        return [getattr(thing, item.name) for item in fields(thing)]
    return [vars(thing) if hasattr(thing, "__dict__") else repr(thing)]
