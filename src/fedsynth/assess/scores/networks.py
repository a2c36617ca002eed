"""Feature networks by the name that a command line gives."""

from __future__ import annotations

from pathlib import Path

from fedsynth.assess.scores.efficientnet import efficientnet
from fedsynth.assess.scores.features import FeatureNetwork, inception, inception_from_hub
from fedsynth.errors import BadInput, nearest

NAMES = ("lenet", "efficientnet-lite0", "inception-v3")


def network_named(name: str) -> FeatureNetwork | None:
    """The network; None for the LeNet that is trained on the real images when they are known."""
    if name == "lenet":
        return None
    if name == "efficientnet-lite0":
        return efficientnet()
    if name == "inception-v3":
        return inception_from_hub()
    if Path(name).suffix:
        return inception(name)
    raise BadInput(f"--network {name}: {nearest(name, NAMES)}, or a file of Inception-v3")
