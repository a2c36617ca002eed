"""Progress of work in pieces, such as the scores of a report: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

_SECONDS = 5.0  # between two lines when there is no terminal


class StepProgress:
    """Shows which piece is at work and how many are done, always on standard error; nothing if quiet."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._last = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            parts = (BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"))
            title = TextColumn("{task.description}")
            self._bar = Progress(*parts, title, TimeElapsedColumn(), console=self._console)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, title: str, done: int, total: int) -> None:
        """Show what comes next."""
        if self._quiet:
            return
        if self._bar:
            if self._task is None:
                self._task = self._bar.add_task(title, total=total)
            self._bar.update(self._task, description=title, completed=done)
            return
        now = time.monotonic()
        if now - self._last >= _SECONDS or done == total:
            self._last = now
            self._console.print(f"{done}/{total}  {title}", soft_wrap=True)
