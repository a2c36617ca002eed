import torch

from fedsynth.federation.server import Momentum, ServerAdam


def test_without_momentum_the_mean_update_is_added():
    rule = Momentum()
    params, _ = rule.step(torch.ones(2), torch.tensor([0.5, -1.0]), rule.init(torch.ones(2)))
    assert params.tolist() == [1.5, 0.0]


def steps(rule, reference, updates):
    params, memory = torch.zeros(3), rule.init(torch.zeros(3))
    mirrored = torch.nn.Parameter(torch.zeros(3))
    optimizer = reference([mirrored])
    for update in updates:
        params, memory = rule.step(params, update, memory)
        mirrored.grad = -update
        optimizer.step()
    torch.testing.assert_close(params, mirrored.detach(), rtol=1e-5, atol=1e-6)


def test_momentum_equals_torch_on_the_negated_update():
    updates = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    steps(Momentum(0.9, 0.5), lambda p: torch.optim.SGD(p, 0.5, momentum=0.9), updates)
    steps(
        Momentum(0.9, 0.5, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.5, momentum=0.9, nesterov=True),
        updates,
    )


def test_adam_equals_torch_on_the_negated_update():
    updates = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    steps(
        ServerAdam(0.01, 0.9, 0.99, 1e-4),
        lambda p: torch.optim.Adam(p, 0.01, betas=(0.9, 0.99), eps=1e-4),
        updates,
    )
