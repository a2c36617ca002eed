"""The work of a fedsynth job at a site: the site that this machine's own site.toml describes answers."""

from __future__ import annotations

import os
from functools import cached_property

from fedsynth.deploy.inspection.at_site import AtSite
from fedsynth.deploy.site.site import Site
from fedsynth.deploy.site.site_file import SiteFile

SITE_FILE = "FEDSYNTH_SITE"  # set by `fedsynth site start`; nothing that the server sends can change it


class SiteJob:
    """Makes the site on the first message, so that rows are read once a job."""

    @cached_property
    def _site(self) -> Site:
        return SiteFile.load(os.environ[SITE_FILE]).site(AtSite)

    def handle(self, payload: bytes) -> bytes:
        """The site's answer."""
        return self._site.handle(payload)
