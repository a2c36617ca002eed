"""Progress of long work: a bar on a terminal, a line now and then elsewhere, nothing if quiet. Always on stderr."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from fedsynth.cli.stopwatch import Stopwatch
    from fedsynth.federation.loop import Round

_SECONDS = 5.0  # between two lines when there is no terminal


class _Bar:
    """A bar on a terminal; `show` moves it, or prints the line where there is none."""

    def __init__(self, *columns: ProgressColumn, quiet: bool) -> None:
        self._quiet = quiet
        self._console = Console(stderr=True)
        self._columns = columns
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._last = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._bar = Progress(*self._columns, console=self._console)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def _show(self, done: int, total: int, line: str, *, begun: int = 0, **texts: Any) -> None:
        if self._quiet:
            return
        if self._bar:
            if self._task is None:
                self._task = self._bar.add_task("", total=total, completed=begun, **texts)
            self._bar.update(self._task, completed=done, **texts)
            return
        now = time.monotonic()
        if now - self._last >= _SECONDS or done >= total:
            self._last = now
            self._console.print(line, soft_wrap=True)


class StepProgress(_Bar):
    """Shows which piece of the work comes next and how many are done."""

    def __init__(self, *, quiet: bool) -> None:
        count, title = TextColumn("{task.completed:.0f}/{task.total:.0f}"), TextColumn("{task.fields[title]}")
        super().__init__(BarColumn(), count, title, TimeElapsedColumn(), quiet=quiet)

    def __call__(self, title: str, done: int, total: int) -> None:
        """Show the piece that comes next."""
        self._show(done, total, f"{done}/{total}  {title}", title=title)


class TrainingProgress(_Bar):
    """Shows round, epsilon spent of the budget, loss and time left; call it after each round."""

    def __init__(self, budget: float | None, *, quiet: bool = False, clock: Stopwatch | None = None) -> None:
        super().__init__(
            TextColumn("training"),
            BarColumn(),
            TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[spent]}"),
            TextColumn("{task.fields[loss]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            quiet=quiet,
        )
        self._budget = budget
        self._began = self._last = time.monotonic()
        self._first = 0
        self._begun = False
        self._clock = clock

    def note(self, text: str) -> None:
        """Show a line of its own, for example what happens to a site."""
        if not self._quiet:
            self._console.print(text, soft_wrap=not self._console.is_terminal, highlight=False, markup=False)

    def __call__(self, done: Round, epsilon: float | None, rounds: int) -> None:
        """Show a finished round."""
        if self._clock and self._begun:
            self._clock.end("rounds")
        elif self._clock:
            self._clock.end("reading, encoding, noise and opening", within="rounds", within_s=done.seconds)
        self._begun = True
        if self._quiet:
            return
        loss = "" if done.loss is None else f"loss {done.loss:.2f}"
        spent = "no privacy" if epsilon is None else f"epsilon {epsilon:.2f} of {self._budget:g}"
        self._first = self._first or done.version
        pace = (time.monotonic() - self._began) / (done.version - self._first + 1)
        left = pace * (rounds - done.version)
        line = f"round {done.version}/{rounds}  {spent}  {loss}  {left:.0f} s left"
        self._show(done.version, rounds, line, begun=done.version - 1, spent=spent, loss=loss)
