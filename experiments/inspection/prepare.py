"""Make the data, schemas and primary models that the TOML files here name: python experiments/inspection/prepare.py."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from pixels import inverted, primary_network, writers
from torch import nn

from fedsynth.data.clients import RawClients
from fedsynth.data.datasets import mnist

HERE = Path(__file__).parent / "data"
AFFECTED = 0.5


def write_images(raw: RawClients, path: Path) -> None:
    np.savez_compressed(
        path,
        images=raw.images,
        labels=np.asarray(raw.labels, dtype=np.str_),
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
    mnist("test")[2].save(HERE / "digits.json")
    export(primary_network(), torch.zeros(1, 1, 28, 28), HERE / "digits.onnx")


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    pixels()
