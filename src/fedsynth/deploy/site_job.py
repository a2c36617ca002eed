"""The work of a fedsynth job at a site: the site that this machine's own site.toml describes answers."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from fedsynth.deploy.environment import NOTICES, SITE_FILE
from fedsynth.deploy.inspection.at_site import AtSite
from fedsynth.deploy.link.codec import BadMessage, fingerprint
from fedsynth.deploy.link.messages import Refuse, read, write
from fedsynth.deploy.memory import EVERY_MESSAGES, give_back
from fedsynth.deploy.site.site import Site
from fedsynth.deploy.site.site_file import SiteFile


class SiteJob:
    """Makes the site on the first message, so that rows are read once a job."""

    def __init__(self) -> None:
        self._messages = 0

    @cached_property
    def _site(self) -> Site:
        return SiteFile.load(os.environ[SITE_FILE]).site(AtSite)

    def handle(self, payload: bytes) -> bytes:
        """The site's answer; where its files cannot be read, the coordinator hears so, but not what is in them."""
        try:
            site = self._site
        except Exception as error:
            return _cannot_begin(payload, error)
        self._messages += 1
        if self._messages % EVERY_MESSAGES == 0:
            give_back()
        return site.handle(payload)


def _cannot_begin(payload: bytes, error: Exception) -> bytes:
    """Refuse because of the site's own files; the error may quote a row, so its text stays on this machine."""
    with suppress(OSError, KeyError), Path(os.environ[NOTICES]).open("a") as file:
        file.write(f"cannot take part: {error or type(error).__name__}\n")
    try:
        run = read(payload).run
    except BadMessage:
        run = ""
    reason = (
        f"the site cannot use its rows or its site.toml ({type(error).__name__}); the reason is in its own output, and "
        "fedsynth site check shows it there"
    )
    return write(Refuse(run, fingerprint(payload), "data", reason))
