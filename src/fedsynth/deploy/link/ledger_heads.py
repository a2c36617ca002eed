"""The sites' ledgers as the server remembers them: how many lines each once showed, and the hash of the last.

Each line of a ledger holds the hash of the one before. So a site proves that its ledger is the one of before, or a
longer one, by the hash of one line; a copy that was restored, or that a clone of the site writes, cannot.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock

from fedsynth.data.atomic import write_file
from fedsynth.deploy.link.messages import Accept

RESTORE = (
    "an older copy of its state folder was restored, or a copy of the site spends elsewhere: stop the copy and restore "
    "the newest state folder; if that is lost for good and whoever owns the data agrees, the server's operator runs "
    "fedsynth federation forget"
)


@dataclass
class LedgerHeads:
    """The longest ledger that each site has shown; in a file of the server's, for all its runs."""

    path: Path | None = None
    _heads: dict[str, tuple[int, str]] = field(default_factory=dict, init=False)
    _saved: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        self._heads = self._read()

    def _read(self) -> dict[str, tuple[int, str]]:
        if self.path is None or not self.path.exists():
            return {}
        return {
            site: (int(count), str(last)) for site, (count, last) in json.loads(self.path.read_text()).items()
        }

    def known(self, site: str) -> int:
        """How many lines this site has shown; 0 if it is new."""
        return self._heads.get(site, (0, ""))[0]

    def problem(self, site: str, accept: Accept) -> str:
        """Why this site may not take part, in words; empty if its ledger goes on from the one that it showed."""
        count, last = self._heads.get(site, (0, ""))
        if count and accept.proof != last:
            return f"its ledger is not the one of which it showed {count} lines before: {RESTORE}"
        return ""

    def note(self, site: str, shown: str) -> None:
        """Remember what a site shows of its ledger, if it is longer."""
        count, _, last = shown.partition(":")
        if count.isdigit() and int(count) > self.known(site):
            self._heads[site], self._saved = (int(count), last), False

    def save(self) -> None:
        """Make it durable; other jobs of this server may do so too."""
        if self._saved or self.path is None:
            return
        with FileLock(self.path.with_suffix(".lock")):
            for site, (count, last) in self._read().items():
                self.note(site, f"{count}:{last}")
            write_file(self.path, json.dumps(self._heads, indent=1) + "\n")
        self._saved = True

    def forget(self, site: str) -> bool:
        """Take whatever ledger this site shows next; False if nothing is known of it."""
        assert self.path is not None
        with FileLock(self.path.with_suffix(".lock")):
            heads = self._read()
            known = heads.pop(site, None) is not None
            write_file(self.path, json.dumps(heads, indent=1) + "\n")
        return known
