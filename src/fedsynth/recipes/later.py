"""A recipe's function by its name: its file is imported when the function is first needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsynth.federation.algorithm import Algorithm
    from fedsynth.recipes.task import Task


class Later:
    """Stands for a function of a file in this room; `inspect` sees that function."""

    def __init__(self, file: str, name: str) -> None:
        self.file, self.name = file, name

    def __call__(self, task: Task, **groups: Any) -> Algorithm:
        """Compose the algorithm."""
        return self.__wrapped__(task, **groups)

    @cached_property
    def __wrapped__(self) -> Callable[..., Algorithm]:
        function: Callable[..., Algorithm] = getattr(
            import_module(f"fedsynth.recipes.{self.file}"), self.name
        )
        return function
