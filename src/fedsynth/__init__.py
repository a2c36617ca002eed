"""fedsynth: one synthetic data set made together, with a privacy statement that is true."""

from fedsynth.data.clients import clients_from, image_clients_from
from fedsynth.data.schema import Schema
from fedsynth.rng import Rng
from fedsynth.synthesis.synthesizer import Synthesizer

__all__ = ["Rng", "Schema", "Synthesizer", "clients_from", "image_clients_from"]
