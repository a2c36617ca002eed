"""ONNX files by onnxruntime (extra `inspect`): graphs of numbers, which cannot reach files or the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec

import numpy as np

from fedsynth.errors import BadInput

MOST_BYTES = 2**25  # of a model that travels
_MISSING = "an ONNX model needs onnxruntime; install it with: pip install 'fedsynth[inspect]'"
_OWN_NAME = "onnxruntime"


def check_installed() -> None:
    """Refuse ONNX models where nothing runs them."""
    if find_spec(_OWN_NAME) is None:
        raise BadInput(_MISSING)


def load_graph(
    content: bytes, shape: Sequence[int | None], widths: Sequence[int], where: str
) -> Callable[[np.ndarray], np.ndarray]:
    """A function of float32 rows of this shape, from a graph with one input; its first output is what counts.

    `widths` are the numbers a row that it may give. What the file says of its shapes is checked here, and what it
    really gives by whoever reads it.
    """
    check_installed()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"{where}: cannot be read as an ONNX model ({reason})") from None
    inputs = session.get_inputs()
    if len(inputs) != 1:
        raise BadInput(f"{where}: the model has {len(inputs)} inputs; expected one, the encoded rows")
    if inputs[0].type != "tensor(float)" or not _fits(inputs[0].shape, [None, *shape]):
        wanted = ", ".join(str(size or "symbols") for size in shape)
        raise BadInput(
            f"{where}: the model takes {inputs[0].type} of shape {list(inputs[0].shape)}; expected float numbers of "
            f"shape [rows, {wanted}], as the schema encodes rows without their label"
        )
    output = session.get_outputs()[0].shape
    if not (_fits(output, [None]) or any(_fits(output, [None, width]) for width in widths)):
        expected = " or ".join(f"[rows, {width}]" for width in widths)
        raise BadInput(
            f"{where}: the model gives scores of shape {list(output)}; expected {expected} or [rows]"
        )

    def run(rows: np.ndarray) -> np.ndarray:
        return np.asarray(session.run(None, {inputs[0].name: rows})[0])

    return run


def _fits(declared: Sequence[int | str | None], expected: Sequence[int | None]) -> bool:
    """Whether a declared shape allows the expected one; a name or None stands for any size."""
    return len(declared) == len(expected) and all(
        wanted is None or not isinstance(size, int) or size == wanted
        for size, wanted in zip(declared, expected, strict=True)
    )
