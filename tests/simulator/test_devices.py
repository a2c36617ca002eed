import pytest
import torch

from fedsynth.errors import BadInput
from fedsynth.simulator.devices import check_device, precision


@pytest.mark.parametrize(
    ("device", "matmul", "complaint"),
    [
        ("gpu", None, "device='gpu': unknown"),
        ("cpu", "tf23", "matmul='tf23': unknown; did you mean 'tf32'"),
        ("cpu", "tf32", "for a GPU"),
    ],
)
def test_what_is_not_there_is_refused(device, matmul, complaint):
    with pytest.raises(BadInput, match=complaint):
        check_device(device, matmul)


@pytest.mark.parametrize("matmul", [None, "float32"])
def test_a_cpu_computes_in_single_precision(matmul):
    check_device("cpu", matmul)


def test_the_precision_holds_inside_and_no_longer():
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    with pytest.raises(RuntimeError, match="inside"), precision("tf32"):
        assert torch.get_float32_matmul_precision() == "high" and torch.backends.cudnn.allow_tf32
        with precision(None):
            assert torch.get_float32_matmul_precision() == "highest" and not torch.backends.cudnn.allow_tf32
        raise RuntimeError("inside")
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before
