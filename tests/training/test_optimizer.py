import pytest
import torch

from fedsynth.training.optimizer import SGD, Adam, keep_where

CASES = [
    (SGD(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    (SGD(0.1, momentum=0.9), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
    (Adam(0.01), lambda p: torch.optim.Adam(p, 0.01)),
    (Adam(0.02, 0.8, 0.95, 1e-3), lambda p: torch.optim.Adam(p, 0.02, betas=(0.8, 0.95), eps=1e-3)),
]


@pytest.mark.parametrize(("ours", "theirs"), CASES, ids=[repr(ours)[:40] for ours, _ in CASES])
def test_steps_equal_those_of_torch(ours, theirs):
    draw = torch.Generator().manual_seed(0)
    start = torch.randn(3, 7, generator=draw)
    reference = torch.nn.Parameter(start.clone())
    optimizer = theirs([reference])
    params, slots = start, ours.init(start)
    for _ in range(6):
        gradient = torch.randn(3, 7, generator=draw)
        params, slots = ours.step(params, gradient, slots)
        reference.grad = gradient.clone()
        optimizer.step()
        torch.testing.assert_close(params, reference.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", [SGD(0.1, momentum=0.9), Adam(0.01)])
def test_a_step_changes_neither_its_parameters_nor_its_state_in_place(optimizer):
    params = torch.ones(2, 3)
    params_before, slots = params.clone(), optimizer.init(params)
    _, slots = optimizer.step(params, torch.ones(2, 3), slots)
    before = {name: value.clone() for name, value in slots.items()}
    optimizer.step(params, torch.full((2, 3), 2.0), slots)
    assert torch.equal(params, params_before)
    assert all(torch.equal(slots[name], before[name]) for name in before)


def test_a_stack_steps_as_its_clients_would_alone():
    params, gradient = torch.randn(4, 5), torch.randn(4, 5)
    rule = Adam(0.1)
    together, _ = rule.step(params, gradient, rule.init(params))
    for client in range(4):
        alone, _ = rule.step(
            params[client : client + 1], gradient[client : client + 1], rule.init(params[:1])
        )
        assert torch.equal(together[client], alone[0])


def test_keep_where_chooses_by_client():
    new, old = torch.ones(3, 2, 2), torch.zeros(3, 2, 2)
    assert keep_where(torch.tensor([True, False, True]), new, old)[:, 0, 0].tolist() == [1, 0, 1]
