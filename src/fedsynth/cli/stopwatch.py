"""Where the time of a command went, for `--profile`."""

from __future__ import annotations

import time
from collections.abc import Callable

import typer


class Stopwatch:
    """Adds up the seconds of phases that follow one another.

    >>> clock = Stopwatch(iter([0.0, 1.0, 4.0]).__next__)
    >>> clock.end("reading"); clock.end("training")
    >>> clock.lines()
    ['   1.00 s   25 %  reading', '   3.00 s   75 %  training', '   4.00 s  in all']
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._last = now()
        self._seconds: dict[str, float] = {}

    def end(self, phase: str, *, within: str = "", within_s: float = 0.0) -> None:
        """The phase that began when the last one ended is over; `within_s` of it were the phase named `within`."""
        began, self._last = self._last, self._now()
        self._add(phase, self._last - began - within_s)
        if within:
            self._add(within, within_s)

    def _add(self, phase: str, seconds: float) -> None:
        self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds

    def lines(self) -> list[str]:
        """A line for each phase, and one for the whole."""
        whole = sum(self._seconds.values())
        lines = [
            f"{seconds:7.2f} s  {seconds / max(whole, 1e-9):4.0%}  {phase}".replace("%", " %")
            for phase, seconds in self._seconds.items()
        ]
        return [*lines, f"{whole:7.2f} s  in all"]

    def tell(self) -> None:
        """Print the lines, apart from the command's result."""
        for line in self.lines():
            typer.echo(line, err=True)
