"""ONNX files by onnxruntime (extra `inspect`): graphs of numbers, which cannot reach files or the network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedsynth.errors import BadInput


def load_graph(path: Path) -> Callable[[np.ndarray], np.ndarray]:
    """A function of one float32 array, from a graph with one input; its first output is what counts."""
    try:
        import onnxruntime
    except ImportError:
        raise BadInput(
            "an ONNX model needs onnxruntime; install it with: pip install 'fedsynth[inspect]'"
        ) from None
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file; check the path of the ONNX model")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        told = str(error).splitlines()[0]
        raise BadInput(f"{path}: cannot be read as an ONNX model ({told})") from None
    inputs = session.get_inputs()
    if len(inputs) != 1:
        raise BadInput(f"{path}: the model has {len(inputs)} inputs; expected one, the encoded rows")

    def run(rows: np.ndarray) -> np.ndarray:
        return np.asarray(session.run(None, {inputs[0].name: rows})[0])

    return run
