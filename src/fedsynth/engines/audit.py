"""A site's log of what it was asked and what it did: lines of JSON, each chained to the last by its hash."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedsynth.privacy import chain


class Audit:
    """An append-only log. The ledger says what was spent; this says who asked for what and why it was refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        contents = chain.read(path)
        self._count, self._last = len(contents.lines), chain.FIRST
        if contents.lines:
            self._last = str(contents.lines[-1].get("hash"))
        self._size = contents.size

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
            contents = chain.read(self.path)
            if contents.torn:
                chain.finish_torn(self.path, contents, len(contents.lines), self._last)
            self.__init__(self.path)  # type: ignore[misc]

    def lines(self) -> list[dict[str, Any]]:
        """All that was noted."""
        return list(chain.read(self.path).lines)

    def verify(self) -> list[str]:
        """What is wrong with the log, in sentences."""
        return list(chain.read(self.path).problems)
