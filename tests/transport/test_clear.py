import torch

from fedsynth.transport.clear import Clear
from fedsynth.transport.wire import Real


def test_the_sum_is_that_of_weights_times_messages():
    wire, clear = Real(3), Clear()
    messages = torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])
    total = clear.absorb(wire, clear.zero(wire), messages, torch.tensor([1.0, 0.5]))
    total = clear.absorb(wire, total, messages[:1], torch.ones(1))
    assert clear.open(wire, total).tolist() == [7.0, 14.0, 21.0]


def test_messages_on_a_grid_sum_to_the_same_bits_in_any_order_and_chunking():
    wire, clear = Real(50), Clear()
    draw = torch.Generator().manual_seed(0)
    messages = torch.randint(-(2**20), 2**20, (1000, 50), generator=draw).float() * 2.0**-20
    whole = clear.absorb(wire, clear.zero(wire), messages, torch.ones(1000))
    total = clear.zero(wire)
    for chunk in messages[torch.randperm(1000, generator=draw)].split(7):
        total = clear.absorb(wire, total, chunk, torch.ones(len(chunk)))
    assert torch.equal(total, whole)


def test_the_server_sees_the_sum_and_says_so():
    assert not Clear().blind and not Clear().needs_cohort
