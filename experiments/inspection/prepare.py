"""Make the data, schemas and primary models that the TOML files here name: python experiments/inspection/prepare.py."""

from __future__ import annotations

import gzip
import json
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from pixels import inverted, primary_network, writers
from public_digits import Subspaces, public_subspaces
from records import BUGS, broken, people, public_model, usual_score
from torch import nn

from fedsynth.data.clients import RawClients
from fedsynth.data.schema import Schema
from fedsynth.data.text import words_of
from fedsynth.research.datasets import adult, data_folder, mnist

HERE = Path(__file__).parent / "data"
AFFECTED = 0.5


def write_images(raw: RawClients, path: Path) -> None:
    np.savez_compressed(
        path,
        images=raw.data[0],
        labels=np.asarray(raw.data[1], dtype=np.str_),
        owner=np.array(raw.names)[raw.owner],
    )


def export(network: nn.Module, example: torch.Tensor, path: Path) -> None:
    """The network as an ONNX file of any number of rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (example,),
            str(path),
            input_names=["rows"],
            output_names=["scores"],
            dynamic_axes={"rows": {0: "count"}, "scores": {0: "count"}},
            dynamo=False,
        )


def pixels() -> None:
    """MNIST by writer, with and without inverted pixels, and the classifier that suffers from them."""
    raw = writers()
    write_images(inverted(raw, AFFECTED, seed=1), HERE / "digits_inverted.npz")
    write_images(raw, HERE / "digits.npz")
    write_images(replace(raw, labels=np.full(raw.rows, "")), HERE / "digits_unlabelled.npz")
    mnist("test")[2].save(HERE / "digits.json")
    example = torch.zeros(1, 1, 28, 28)
    export(primary_network(), example, HERE / "digits.onnx")
    export(Subspaces(*public_subspaces()), example, HERE / "public_digits.onnx")


def people_with_bugs() -> None:
    """Adult dealt to clients, each bug at three in ten of them, and the public model that finds such rows odd."""
    raw = people()
    for bug in BUGS:
        held = broken(raw, bug, 0.3, seed=1)
        held.data.assign(person=held.owner).to_csv(HERE / f"adult_{bug}.csv", index=False)
    schema = adult("test")[1].with_client("person")
    schema.save(HERE / "adult.json")
    model = public_model()
    export(model, torch.zeros(1, len(model.weights)), HERE / "public_adult.onnx")
    print(f"adult: a score below {usual_score():.4f} is reached by 5% of the public rows")


def posts() -> None:
    """Stack Exchange by user with a vocabulary of 500 frequent words of Shakespeare's roles, which are public."""
    lines = (
        gzip.decompress((data_folder() / "shakespeare_tff_by_role.jsonl.gz").read_bytes())
        .decode()
        .splitlines()
    )
    words = Counter(word for line in lines for word in words_of(json.loads(line)["text"]))
    vocabulary = tuple(word for word, _ in words.most_common(500))
    Schema(kind="text", vocabulary=vocabulary, length=12, client="user").save(HERE / "posts.json")
    source = data_folder() / "stackexchange_by_user.jsonl.gz"
    (HERE / "posts.jsonl").write_bytes(gzip.decompress(source.read_bytes()))


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    pixels()
    people_with_bugs()
    posts()
