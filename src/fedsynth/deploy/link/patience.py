"""How long a server waits for its sites, and how waiting ends if they do not come."""

from __future__ import annotations

from dataclasses import dataclass

from fedsynth.deploy.link.codec import MOST_BYTES
from fedsynth.errors import FedsynthError


class TooFewSites(FedsynthError):
    """Fewer sites than the run may do with; it can be resumed when they are back."""


class Superseded(FedsynthError):
    """Another server conducts this run now."""


@dataclass(frozen=True)
class Patience:
    """How long the server waits: `timeout_s` for an answer, and `resend_s` before it asks the same again."""

    timeout_s: float = 600.0
    resend_s: float = 60.0
    ping_s: float = 2.0  # how often a site that is away is asked whether it is back
    most_bytes: int = MOST_BYTES
