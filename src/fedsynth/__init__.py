"""fedsynth: one synthetic data set made together, with a privacy statement that is true."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsynth.api import audit, evaluate, plan, report
    from fedsynth.data.clients import clients_from, image_clients_from
    from fedsynth.data.schema import Schema
    from fedsynth.rng import Rng
    from fedsynth.synthesis.synthesizer import Synthesizer

__all__ = [
    "Rng", "Schema", "Synthesizer", "audit", "clients_from", "evaluate", "image_clients_from", "plan",
    "report",
]  # fmt: skip
_PLACES = {
    "audit": "fedsynth.api",
    "evaluate": "fedsynth.api",
    "plan": "fedsynth.api",
    "report": "fedsynth.api",
    "Rng": "fedsynth.rng",
    "Schema": "fedsynth.data.schema",
    "Synthesizer": "fedsynth.synthesis.synthesizer",
    "clients_from": "fedsynth.data.clients",
    "image_clients_from": "fedsynth.data.clients",
}


def __getattr__(name: str) -> Any:
    """Import on first use: a site's watching process needs none of torch, and starts in a fraction of the time."""
    if name not in _PLACES:
        raise AttributeError(f"module 'fedsynth' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    """List the public names, which completion asks for."""
    return __all__
