import torch

from fedsynth.federation.state import ServerState


def test_a_state_comes_back_whole_from_its_tensors():
    state = ServerState(
        7,
        {"decoder": torch.ones(3)},
        {"velocity": torch.zeros(3)},
        {"clip": torch.ones(1)},
        torch.tensor([0.4, 0.6]),
    )
    back = ServerState.from_tensors(state.to_tensors())
    assert back.version == 7 and torch.equal(back.balance, state.balance)
    for group in ("parts", "memory", "mechanism"):
        before, after = getattr(state, group), getattr(back, group)
        assert set(before) == set(after) and all(torch.equal(before[name], after[name]) for name in before)


def test_a_state_without_a_balance_comes_back_without_one():
    assert ServerState.from_tensors(ServerState(0, {}).to_tensors()).balance is None
