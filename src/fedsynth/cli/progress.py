"""Progress of long work: a bar on a terminal, a line now and then elsewhere, nothing if quiet. Always on stderr."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedsynth.federation.loop import Round

_SECONDS = 5.0  # between two lines when there is no terminal


class TrainingProgress:
    """Shows round, epsilon spent of the budget, loss and time left; call it after each round."""

    def __init__(self, budget: float | None, *, quiet: bool = False) -> None:
        self._budget = budget
        self._quiet = quiet
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._began = self._last = time.monotonic()
        self._first = 0

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._bar = Progress(
                TextColumn("training"),
                BarColumn(),
                TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
                TextColumn("{task.fields[spent]}"),
                TextColumn("{task.fields[loss]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=self._console,
            )
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def note(self, text: str) -> None:
        """Show a line of its own, for example what happens to a site."""
        if not self._quiet:
            self._console.print(text, soft_wrap=True, highlight=False, markup=False)

    def __call__(self, done: Round, epsilon: float | None, rounds: int) -> None:
        """Show a finished round."""
        if self._quiet:
            return
        loss = "" if done.loss is None else f"loss {done.loss:.2f}"
        spent = "no privacy" if epsilon is None else f"epsilon {epsilon:.2f} of {self._budget:g}"
        if self._bar:
            if self._task is None:
                self._task = self._bar.add_task(
                    "", total=rounds, spent=spent, loss=loss, completed=done.version - 1
                )
            self._bar.update(self._task, completed=done.version, spent=spent, loss=loss)
            return
        now = time.monotonic()
        self._first = self._first or done.version
        if now - self._last < _SECONDS and done.version < rounds:
            return
        self._last = now
        pace = (now - self._began) / (done.version - self._first + 1)
        left = pace * (rounds - done.version)
        self._console.print(
            f"round {done.version}/{rounds}  {spent}  {loss}  {left:.0f} s left", soft_wrap=True
        )
