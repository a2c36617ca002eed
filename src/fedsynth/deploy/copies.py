"""Second processes with a site's kit: the server's engine notes that it refused one, its job tells those concerned."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

from fedsynth.deploy.environment import NOTICES

_RECENT_S = 24 * 3600.0
WORDS = (
    "a second process with this site's kit was refused; if nobody moved the site, its kit was copied: "
    "fedsynth federation replace"
)


def note_copy(site: str) -> None:
    """Write down that a second process with this site's kit was refused just now."""
    with suppress(OSError, KeyError), _path().open("a") as file:
        file.write(json.dumps({"site": site, "time": time.time()}) + "\n")


class RefusedCopies:
    """The sites whose copies were refused in the last day or since, each named once."""

    def __init__(self) -> None:
        self._named: set[str] = set()

    def following(self) -> list[str]:
        """Return the sites that were not named yet."""
        lines: list[str] = []
        with suppress(OSError, KeyError):
            lines = _path().read_text().splitlines()
        recent: dict[str, None] = {}
        for line in lines:
            with suppress(ValueError, KeyError, TypeError):
                noted = json.loads(line)
                if time.time() - noted["time"] < _RECENT_S:
                    recent[str(noted["site"])] = None
        sites = [site for site in recent if site not in self._named]
        self._named.update(sites)
        return sites


def _path() -> Path:
    return Path(os.environ[NOTICES]).with_name("copies.jsonl")
