"""All that left the clients in an inspection: noisy answers and models. Everything else follows from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from fedsynth.data.atomic import write_file
from fedsynth.data.schema import Schema
from fedsynth.inspection.auxiliary import Trainer
from fedsynth.inspection.selection import Share
from fedsynth.inspection.survey import Spread
from fedsynth.synthesis.generator import Generator
from fedsynth.synthesis.request import Request

FILE = "seen.json"


@dataclass(frozen=True)
class Taken:
    """A selection in words, how many clients met it (up to noise), and the model of it."""

    words: str
    share: Share
    generator: Generator


@dataclass(frozen=True)
class ReleasedAnswers:
    """The clients' answers, and the trainer of all models; `seeded` if any of the noise could be drawn again."""

    trainer: Trainer
    models: Mapping[str, Taken]
    spreads: tuple[Spread, ...]
    seeded: bool

    def save(self, folder: Path) -> list[Path]:
        """Write it down, in files that whoever asked may have."""
        written = [folder / f"{name}.safetensors" for name in self.models]
        for path, taken in zip(written, self.models.values(), strict=True):
            taken.generator.save(path)
        plain = {
            "clients": self.trainer.task.clients,
            "noise_multiplier": self.trainer.recipe.value_of("noise", self.trainer.values),
            "seeded": self.seeded,
            "models": {
                name: {"words": taken.words, "share": asdict(taken.share)}
                for name, taken in self.models.items()
            },
            "spreads": [asdict(spread) for spread in self.spreads],
        }
        write_file(folder / FILE, json.dumps(plain, indent=1, allow_nan=False) + "\n")
        return [*written, folder / FILE]

    @classmethod
    def load(cls, folder: Path, request: Request, schema: Schema) -> ReleasedAnswers:
        """Read what `save` wrote for this request; `schema` is the one that models were trained with."""
        keys = json.loads((folder / FILE).read_text())
        trainer = Trainer.of(request, schema, keys["clients"])
        if keys["noise_multiplier"] is not None:
            trainer = trainer.with_noise(keys["noise_multiplier"])
        models = {}
        for name, taken in keys["models"].items():
            path = folder / f"{name}.safetensors"
            generator = Generator.load(path, schema, trainer.recipe.name, trainer.values)
            models[name] = Taken(taken["words"], Share(**taken["share"]), generator)
        spreads = tuple(Spread(**{**spread, "counts": tuple(spread["counts"])}) for spread in keys["spreads"])
        return cls(trainer, models, spreads, keys["seeded"])
