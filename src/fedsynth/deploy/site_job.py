"""The work of a fedsynth job at a site: the site that this machine's own site.toml describes answers."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from fedsynth.deploy.environment import NOTICES, SITE_FILE
from fedsynth.deploy.inspection.at_site import AtSite
from fedsynth.deploy.link.codec import BadMessage, fingerprint
from fedsynth.deploy.link.messages import Notice, Refuse, read, write
from fedsynth.deploy.memory import EVERY_MESSAGES, give_back
from fedsynth.deploy.site.activity_log import ActivityLog
from fedsynth.deploy.site.site import Site
from fedsynth.deploy.site.site_file import SiteFile

_OWN_AFFAIRS = ("begin", "session", "stale")  # refusals that server and site settle among themselves
_SMALL = 2**13  # bytes; a refusal and a notice have less
_LONGEST = 500  # letters of a notice that are printed
_MOST = 100  # sentences in the output of one job: a server may say anything, as often as it likes


class SiteJob:
    """Makes the site on the first message, so that rows are read once a job."""

    def __init__(self) -> None:
        self._messages = 0
        self._said: set[tuple[str, str]] = set()

    @cached_property
    def _site(self) -> Site:
        return SiteFile.load(os.environ[SITE_FILE]).site(AtSite)

    def handle(self, payload: bytes) -> bytes:
        """The site's answer; where its files cannot be read, the coordinator hears so, but not what is in them."""
        try:
            site = self._site
        except Exception as error:
            return self._cannot_begin(payload, str(error) or type(error).__name__, type(error).__name__)
        self._messages += 1
        if self._messages % EVERY_MESSAGES == 0:
            give_back()
        answer = site.handle(payload)
        if len(answer) < _SMALL:
            self._say(answer)
        if len(payload) < _SMALL:
            self._pass_on(payload)
        return answer

    def _cannot_begin(self, payload: bytes, words: str, kind: str) -> bytes:
        """Refuse because of the site's own files; `words` may quote a row, so they stay on this machine."""
        try:
            run = read(payload).run
        except BadMessage:
            run = ""
        if (run, words) not in self._said:  # a site is asked every few seconds whether it is back
            self._said.add((run, words))
            _notice(f"cannot take part: {words}")
            _log_refusal(run, words)
        reason = (
            f"the site cannot use its rows or its site.toml ({kind}); the reason is in its own output, and "
            "fedsynth site check shows it there"
        )
        return write(Refuse(run, fingerprint(payload), "data", reason))

    def _say(self, answer: bytes) -> None:
        """Tell this site's own people of a refusal, once."""
        match read(answer):
            case Refuse(run=run, code=code, reason=reason) if code not in _OWN_AFFAIRS:
                if (run, reason) not in self._said:
                    self._said.add((run, reason))
                    _notice(f"refuses run {run}: {reason}")

    def _pass_on(self, payload: bytes) -> None:
        """Tell this site's own people what the server has for them, once."""
        with suppress(BadMessage):
            match read(payload):
                case Notice(run=run, text=text) if (run, text) not in self._said and len(self._said) < _MOST:
                    self._said.add((run, text))
                    plain = "".join(letter if letter.isprintable() else " " for letter in text[:_LONGEST])
                    _notice(f"the server says: {plain}")


def _log_refusal(run: str, reason: str) -> None:
    """Write a refusal into the site's own log; where site.toml cannot be read, nobody knows where that is."""
    with suppress(Exception):
        described = SiteFile.load(os.environ[SITE_FILE])
        described.check_state()
        described.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        ActivityLog(described.folder / "audit.jsonl").note("refused", run=run, code="data", reason=reason)


def _notice(words: str) -> None:
    """Write a line for the people who look after this site."""
    with suppress(OSError, KeyError), Path(os.environ[NOTICES]).open("a") as file:
        file.write(" ".join(words.split()) + "\n")
