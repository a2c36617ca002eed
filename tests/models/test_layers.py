"""The layers are torch's own, whatever the method and however vmap and grad are nested around them."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedsynth.models import stacked_convolution
from fedsynth.models.layers import Conv2d, ConvTranspose2d

METHODS = ["auto", "native", "matmul", "stacked"]
CONVOLUTIONS = {  # channels in, channels out, kernel, stride, padding; side of the image
    "grey 28": ((1, 6, 4, 2, 1), 28),
    "rgb 32": ((3, 4, 3, 2, 1), 32),
    "wide": ((9, 10, 3, 2, 1), 7),
    "stride one": ((2, 3, 3, 1, 1), 8),
    "no padding": ((3, 2, 5, 2, 0), 12),
    "rows that no window reaches": ((2, 3, 3, 2, 0), 8),
    "kernel smaller than stride": ((2, 3, 1, 2, 0), 7),
    "oblong": ((2, 3, (3, 2), (1, 2), (1, 0)), 6),
}
TRANSPOSED = {  # ..., output padding
    "grey 28": ((6, 1, 4, 2, 1, 0), 14),
    "rgb 32": ((4, 3, 3, 2, 1, 1), 16),
    "wide": ((10, 9, 3, 2, 1, 1), 7),
    "stride one": ((2, 3, 3, 1, 1, 0), 8),
    "no padding": ((3, 2, 5, 2, 0, 0), 5),
    "kernel smaller than stride": ((2, 3, 1, 2, 0, 1), 4),
    "oblong": ((2, 3, (3, 2), (1, 2), (1, 0), (0, 1)), 6),
}
CASES = [
    pytest.param(ours, theirs, arguments, side, id=f"{ours.__name__}, {name}")
    for ours, theirs, cases in (
        (Conv2d, nn.Conv2d, CONVOLUTIONS),
        (ConvTranspose2d, nn.ConvTranspose2d, TRANSPOSED),
    )
    for name, (arguments, side) in cases.items()
]
CLIENTS, RECORDS = 3, 4


@pytest.fixture(autouse=True)
def stacked(request, monkeypatch):
    """For "stacked", the way that is taken on a GPU, with torch client by client in the place of the kernels."""
    if request.node.callspec.params.get("method") != "stacked" if hasattr(request.node, "callspec") else True:
        return
    monkeypatch.setattr(stacked_convolution, "available", lambda value, geometry: True)
    forms = {"values": stacked_convolution._Values, "maps": stacked_convolution._Maps}
    for name, form in {**forms, "weights": stacked_convolution._Weights}.items():
        monkeypatch.setattr(stacked_convolution.kernels, name, client_by_client(form.forward))


def client_by_client(way):
    def each(first, second, geometry):
        return torch.cat([way(a[None], b[None], geometry) for a, b in zip(first, second, strict=True)])

    return each


def stack_of_parameters(layer: nn.Module, clients: int = CLIENTS) -> dict[str, Tensor]:
    return {name: torch.randn(clients, *p.shape, dtype=p.dtype) for name, p in layer.named_parameters()}


def curved(layer: nn.Module):
    """A loss whose gradient depends on every output."""

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(layer, parameters, (x,)).square().sin().sum()

    return loss


def assert_same(ours: object, theirs: object) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def pair_of_layers(ours: type, theirs: type, arguments: tuple, method: str) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    method = "auto" if method == "stacked" else method
    return ours(*arguments, method=method).double(), theirs(*arguments).double()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("ours", "theirs", "arguments", "side"), CASES)
class TestConvolutionsEqualTorch:
    def test_without_vmap(self, ours, theirs, arguments, side, method):
        mine, plain = pair_of_layers(ours, theirs, arguments, method)
        mine.load_state_dict(plain.state_dict())
        x = torch.randn(2, arguments[0], side, side).double().requires_grad_()

        def result(layer):
            out = layer(x)
            return out, torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])

        assert_same(result(mine), result(plain))

    def test_clients_with_their_own_weights(self, ours, theirs, arguments, side, method):
        mine, plain = pair_of_layers(ours, theirs, arguments, method)
        parameters = stack_of_parameters(plain)
        x = torch.randn(CLIENTS, 2, arguments[0], side, side).double()
        got = {name: value.clone().requires_grad_() for name, value in parameters.items()}
        leaf = x.clone().requires_grad_()
        total = vmap(curved(mine))(got, leaf).sum()
        gradients = torch.autograd.grad(total, [leaf, *got.values()])
        for client in range(CLIENTS):
            alone = {name: value[client] for name, value in parameters.items()}
            by_weight, by_input = grad(curved(plain), argnums=(0, 1))(alone, x[client])
            assert_same([g[client] for g in gradients], [by_input, *by_weight.values()])

    def test_a_gradient_for_each_record_of_each_client(self, ours, theirs, arguments, side, method):
        mine, plain = pair_of_layers(ours, theirs, arguments, method)
        parameters = stack_of_parameters(plain)
        x = torch.randn(CLIENTS, RECORDS, 1, arguments[0], side, side).double()
        over_records = vmap(grad(curved(mine)), in_dims=(None, 0))
        got = vmap(over_records)(parameters, x)
        for client in range(CLIENTS):
            alone = {name: value[client] for name, value in parameters.items()}
            for record in range(RECORDS):
                expected = grad(curved(plain))(alone, x[client, record])
                assert_same({name: g[client, record] for name, g in got.items()}, expected)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("ours", "theirs", "arguments"),
    [(Conv2d, nn.Conv2d, (2, 3, 4, 2, 1)), (ConvTranspose2d, nn.ConvTranspose2d, (2, 3, 4, 2, 1))],
)
def test_the_gradient_of_a_gradient_is_right(ours, theirs, arguments, method):
    """A critic's gradient penalty needs it."""
    mine, plain = pair_of_layers(ours, theirs, arguments, method)
    parameters = stack_of_parameters(plain)
    x = torch.randn(CLIENTS, 2, 2, 6, 6).double()

    def penalty(layer):
        return lambda parameters, x: grad(curved(layer), argnums=1)(parameters, x).square().sum()

    assert_same(vmap(grad(penalty(mine)))(parameters, x), vmap(grad(penalty(plain)))(parameters, x))


@pytest.mark.parametrize(("ours", "theirs"), [(Conv2d, nn.Conv2d), (ConvTranspose2d, nn.ConvTranspose2d)])
def test_clients_may_see_the_same_images(ours, theirs):
    mine, plain = pair_of_layers(ours, theirs, (2, 3, 4, 2, 1), "matmul")
    parameters, x = stack_of_parameters(plain), torch.randn(2, 2, 6, 6).double()
    over = (0, None)
    assert_same(vmap(curved(mine), over)(parameters, x), vmap(curved(plain), over)(parameters, x))


@pytest.mark.parametrize(("ours", "theirs", "arguments", "side"), CASES)
def test_float_results_stay_within_a_hundred_thousandth(ours, theirs, arguments, side):
    torch.manual_seed(1)
    mine, plain = ours(*arguments, method="matmul"), theirs(*arguments)
    mine.load_state_dict(plain.state_dict())
    x = torch.randn(2, arguments[0], side, side)
    assert_same(mine(x), plain(x))


@pytest.mark.parametrize(
    ("ours", "theirs", "arguments"),
    [
        (Conv2d, nn.Conv2d, (3, 8, 4, 2, 1)),
        (ConvTranspose2d, nn.ConvTranspose2d, (8, 3, 3, 2, 1, 1)),
    ],
)
def test_names_shapes_and_initialisation_are_torch_s(ours, theirs, arguments):
    torch.manual_seed(2)
    expected = theirs(*arguments).state_dict()
    torch.manual_seed(2)
    torch.testing.assert_close(ours(*arguments).state_dict(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("layer", [nn.Linear(5, 4), nn.GroupNorm(2, 6), nn.LayerNorm(5)])
def test_torch_s_other_layers_need_no_replacement(layer):
    layer = layer.double()
    parameters, x = stack_of_parameters(layer), torch.randn(CLIENTS, RECORDS, 1, 6, 5).double()
    got = vmap(vmap(grad(curved(layer)), in_dims=(None, 0)))(parameters, x)
    for client in range(CLIENTS):
        alone = {name: value[client] for name, value in parameters.items()}
        for record in range(RECORDS):
            expected = grad(curved(layer))(alone, x[client, record])
            assert_same({name: g[client, record] for name, g in got.items()}, expected)
