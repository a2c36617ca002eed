"""A site's log of what it was asked and what it did: lines of JSON, each chained to the last by its hash."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedsynth.privacy import chain


class ActivityLog:
    """An append-only log. The ledger says what was spent; this says who asked for what and why it was refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._count, self._last, self._size = 0, chain.FIRST, 0
        self._look()

    def _look(self) -> None:
        """Where the log ends on disk."""
        contents = chain.read(self.path)
        self._count, self._size = len(contents.lines), contents.size
        self._last = str(contents.lines[-1].get("hash")) if contents.lines else chain.FIRST

    def note(self, what: str, **details: Any) -> None:
        """Write a line; it survives a power cut once this returns."""
        self._mend()
        time = datetime.now(UTC).isoformat()
        line = chain.link({"time": time, "what": what, **details}, self._count, self._last)
        self._size += chain.write_lines(self.path, [line])
        self._count, self._last = self._count + 1, line["hash"]

    def _mend(self) -> None:
        """Finish or cut off a line that a crash or a full disk left unfinished."""
        if self.path.exists() and self.path.stat().st_size != self._size:
            self._look()
            contents = chain.read(self.path)
            if contents.torn:
                chain.finish_torn(self.path, contents, self._count, self._last)
                self._look()

    def lines(self) -> list[dict[str, Any]]:
        """All that was noted."""
        return list(chain.read(self.path).lines)

    def verify(self) -> list[str]:
        """List what is wrong with the log, in sentences."""
        return list(chain.read(self.path).problems)
