"""How long a server waits for its sites, and how waiting ends if they do not come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedsynth.deploy.link.codec import MOST_BYTES
from fedsynth.deploy.link.messages import Refuse
from fedsynth.errors import FedsynthError

_FIRM = ("policy", "budget", "ledger")  # refusals that last until somebody at the site changes something
_ALLOW = "ask for what the others allow, or let them change their site.toml, and begin a new run"


class TooFewSites(FedsynthError):
    """Fewer sites than the run may do with; it can be resumed when they are back, unless they refuse."""

    def __init__(self, sentence: str, *, resumable: bool = False) -> None:
        super().__init__(sentence)
        self.resumable = resumable


class Superseded(FedsynthError):
    """Another server conducts this run now."""


@dataclass(frozen=True)
class Patience:
    """How long the server waits: `timeout_s` for an answer, and `resend_s` before it asks the same again."""

    timeout_s: float = 600.0
    resend_s: float = 60.0
    ping_s: float = 2.0  # how often a site that is away is asked whether it is back
    most_bytes: int = MOST_BYTES
    slow_s: float = 30.0  # after which it is said who has not answered

    @property
    def slow_news(self) -> str:
        """Return a sentence on a site that has not answered for long."""
        return f"has not answered for {self.slow_s:g} s; it is left out after {self.timeout_s:g} s"


def too_few(
    present: tuple[str, ...], minimum: int, refused: Mapping[str, Refuse], possible: set[str], advice: str
) -> TooFewSites:
    """The sentence for fewer sites than a run needs; resumable unless so many refuse that the others are too few."""
    refused = {site: one for site, one in refused.items() if site not in present}
    firm = {site for site, one in refused.items() if one.final or one.code in _FIRM}
    hopeless = bool(firm) and len(possible - firm) < minimum
    reasons = "".join(f"; {site} refuses: {one.reason}" for site, one in refused.items())
    return TooFewSites(
        f"{len(present)} sites take part ({', '.join(present) or 'none'}), at least {minimum} must; "
        f"{_ALLOW if hopeless else advice}{reasons}",
        resumable=not hopeless,
    )
