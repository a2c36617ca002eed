"""The work of an inspection's job at a site: the site that this machine's own site.toml describes answers."""

from __future__ import annotations

import os
from functools import cached_property

from fedsynth.engines.site import Site
from fedsynth.inspect.at_site import AtSite
from fedsynth.synthesis.attendant import SITE_FILE
from fedsynth.synthesis.site_file import SiteFile


class FromEnvironment:
    """Makes the site on the first message, so that rows are read once a job."""

    @cached_property
    def _site(self) -> Site:
        return SiteFile.load(os.environ[SITE_FILE]).site(AtSite)

    def handle(self, payload: bytes) -> bytes:
        """The site's answer."""
        return self._site.handle(payload)
