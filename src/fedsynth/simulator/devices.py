"""Where clients train, and how exact products of matrices are there: matters of speed and of last digits alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedsynth.errors import BadInput, nearest

PRECISIONS = {"float32": "highest", "tf32": "high"}  # as torch calls them


def check_device(name: str, matmul: str | None) -> None:
    """Refuse a device that is not there, and a precision that is unknown."""
    kinds = {each.partition(":")[0] for each in name.split(",")}
    unknown = sorted(kinds - {"cpu", "cuda"})
    if unknown:
        raise BadInput(f"device={name!r}: unknown; {nearest(unknown[0], ('cpu', 'cuda'))}")
    if len(kinds) > 1:
        raise BadInput(f"device={name!r}: expected devices of one kind, such as cuda:0,cuda:1")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise BadInput(f"device={name!r}: torch finds no GPU on this machine; use cpu")
    if matmul is None:
        return
    if matmul not in PRECISIONS:
        raise BadInput(f"matmul={matmul!r}: unknown; {nearest(matmul, tuple(PRECISIONS))}")
    if matmul != "float32" and not name.startswith("cuda"):
        raise BadInput(f"matmul={matmul!r}: for a GPU; add --device cuda, or leave it out")


@contextmanager
def precision(matmul: str | None) -> Iterator[None]:
    """Products of matrices, convolutions among them, are computed like this inside."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(PRECISIONS[matmul or "float32"])
    try:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=matmul == "tf32"):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
