"""A generator that its server could not open: the sealed average of the last round, and how a key-holder opens it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fedsynth.data.atomic import write_file
from fedsynth.deploy.link.sealed import keyed
from fedsynth.errors import BadInput
from fedsynth.recipes.registry import recipe_named
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.generator import Generator
from fedsynth.synthesis.released_files import checked_run
from fedsynth.transport.he import Homomorphic
from fedsynth.transport.he_scheme import Keys


@dataclass(frozen=True)
class SealedGenerator:
    """RUN/generator.sealed: the last sealed sum of a run over so many clients, and what its server knew in the open.

    That is the class balance, and the parts that were filled in before the first round.
    """

    sealed: bytes
    clients: int
    balance: Tensor | None = None
    parts: Mapping[str, Tensor] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write it whole; nothing in it is secret to whoever has no key."""
        tensors = {"sealed": torch.from_numpy(np.frombuffer(self.sealed, dtype=np.uint8).copy())}
        tensors |= {} if self.balance is None else {"balance": self.balance.contiguous()}
        tensors |= {f"parts/{name}": flat.contiguous() for name, flat in self.parts.items()}
        write_file(path, save(tensors, {"clients": str(self.clients)}))

    @classmethod
    def load(cls, path: Path) -> SealedGenerator:
        """Read what `save` wrote."""
        if not path.is_file():
            raise BadInput(
                f"{path}: not found; expected a finished run over the transport he, which leaves its generator sealed"
            )
        try:
            with safe_open(path, framework="pt") as file:
                clients = int((file.metadata() or {})["clients"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            parts = {name[6:]: flat for name, flat in tensors.items() if name.startswith("parts/")}
            return cls(tensors["sealed"].numpy().tobytes(), clients, tensors.get("balance"), parts)
        except (SafetensorError, KeyError, ValueError) as error:
            raise BadInput(f"{path}: cannot be read ({error}); fetch the run again with --resume") from None


def opened(folder: Folder, keys: Keys) -> Generator:
    """The generator of a sealed run, opened with a key-holder's secret key."""
    run = checked_run(folder.path)
    generator = SealedGenerator.load(folder.sealed)
    request, schema = run.request, run.schema
    recipe = recipe_named(request.recipe)
    values = recipe.values(request.arguments)
    algorithm = keyed(recipe.build(request.task(schema, generator.clients), values), keys)
    average = cast(Homomorphic, algorithm.transport).open(algorithm.wire, generator.sealed)
    parts = {**generator.parts, **algorithm.parts_of(average)}
    released = {part: flat for part, flat in parts.items() if part in algorithm.model.generative}
    return Generator(schema, request.recipe, values, released, generator.balance, algorithm.model)
