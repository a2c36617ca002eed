import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.errors import BadInput, Incompatible, NotPrivate
from fedsynth.rng import Rng
from fedsynth.transport.he import Homomorphic, SealedSum
from fedsynth.transport.he_scheme import Keys
from fedsynth.transport.ring import Parties, Ring
from fedsynth.transport.wire import Real

DIM, CLIENTS = 6000, 12


@pytest.fixture(scope="module")
def blind():
    return Homomorphic(reach=1.0).fitted(Real(DIM), CLIENTS)


@pytest.fixture(scope="module")
def opened():
    return Homomorphic("he-open", blind=False).fitted(Ring(DIM, 18), CLIENTS)


def drawn(clients: int, seed: int = 0, dim: int = DIM) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(clients, dim)) / 3)


@settings(max_examples=15, deadline=None)
@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3), seed=st.integers(0, 10**6))
def test_the_opened_average_is_that_of_the_rounded_messages(blind, sizes, seed):
    wire, total, plain = Real(DIM), blind.zero(Real(DIM)), torch.zeros(DIM, dtype=torch.float64)
    first = 0
    for size in sizes:  # whoever is not in a chunk has dropped out
        ids = np.arange(first, first + size)
        messages = blind.rounded(drawn(size, seed + first), Rng(seed), ids)
        total = blind.absorb(wire, total, messages, torch.ones(size))
        plain += messages.sum(0)
        first += size
    assert torch.equal(blind.open(wire, total), plain / sum(sizes))


@settings(max_examples=15, deadline=None)
@given(clients=st.integers(1, CLIENTS), seed=st.integers(0, 10**6))
def test_the_opened_sum_of_a_ring_is_exact(opened, clients, seed):
    wire = Ring(DIM, 18)
    messages = torch.from_numpy(np.random.default_rng(seed).integers(0, 2**18, (clients, DIM)))
    total, plain = opened.zero(wire), wire.zero()
    for message in messages:
        sent = opened.rounded(message[None], Rng(seed), np.zeros(1, dtype=np.int64))
        total = opened.absorb(wire, total, sent, torch.ones(1))
        plain = wire.add(plain, message[None], torch.ones(1))
    assert torch.equal(opened.open(wire, total), plain)


@settings(max_examples=3, deadline=None)
@given(clients=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_ckks_opens_within_its_stated_error(clients, seed):
    wire = Real(500)
    transport = Homomorphic("he-ckks", approximate=True, reach=1.0).fitted(wire, 5)
    messages = transport.rounded(drawn(clients, seed, 500), Rng(seed), np.arange(clients))
    total = transport.absorb(wire, transport.zero(wire), messages, torch.ones(clients))
    off = (transport.open(wire, total) - messages.mean(0)).abs().max()
    assert 0 < float(off) * clients <= transport.laid_out.error


def test_the_server_adds_and_closes_without_the_secret_key(blind):
    server = Homomorphic(reach=1.0, keys=blind.key.shared).fitted(Real(DIM), CLIENTS)
    messages = blind.rounded(drawn(2), Rng(1), np.arange(2))
    total = server.zero(Real(DIM))
    for message in messages:
        total = server.add(total, blind.seal(message[None]))
    assert torch.equal(blind.open(Real(DIM), server.close(total)), messages.mean(0))
    with pytest.raises(BadInput, match="no secret half here"):
        server.open(Real(DIM), total)


def test_clients_of_a_key_holder_seal_without_the_secret_key():
    holder = Homomorphic(blind=False).fitted(Real(DIM, reach=1.0), 4)
    client = Homomorphic(blind=False, keys=holder.key.shared).fitted(Real(DIM, reach=1.0), 4)
    message = client.rounded(drawn(1), Rng(0), np.arange(1))
    assert torch.equal(holder.open(Real(DIM), client.seal(message)), message[0])


def test_a_sum_with_less_noise_than_was_accounted_is_not_opened():
    wire = Ring(40, 16, parties=Parties(4, threshold=3))
    made = Homomorphic(blind=False).fitted(wire, 4)
    messages = torch.ones(3, 40, dtype=torch.int64)
    total = made.absorb(wire, made.zero(wire), messages[:2], torch.ones(2))
    with pytest.raises(NotPrivate, match="2 messages in the sum: the noise is shared out over at least 3"):
        made.open(wire, total)
    total = made.absorb(wire, total, messages[2:], torch.ones(1))
    assert made.open(wire, total).tolist() == [3] * 40


def test_one_client_more_than_stated_is_refused(blind):
    total = SealedSum(blind.laid_out)
    sealed = blind.seal(blind.rounded(drawn(CLIENTS), Rng(0), np.arange(CLIENTS)))
    blind.add(total, sealed)
    one = blind.seal(blind.rounded(drawn(1), Rng(0), np.arange(1)))
    with pytest.raises(Incompatible, match="12 clients and 1 more: this sum has room for 12"):
        blind.add(total, one)
    assert total.count == CLIENTS


def test_an_average_over_nobody_is_empty(blind):
    assert blind.open(Real(DIM), blind.zero(Real(DIM))).numel() == 0


def test_weights_are_refused(blind):
    with pytest.raises(Incompatible, match="cannot be weighted"):
        blind.absorb(Real(DIM), blind.zero(Real(DIM)), drawn(2), torch.tensor([1.0, 0.5]))


def test_a_message_of_another_key_is_named(blind):
    other = Homomorphic(reach=1.0, keys=Keys.fresh(blind.key.parameters)).fitted(Real(DIM), CLIENTS)
    sealed = other.seal(other.rounded(drawn(1), Rng(0), np.arange(1)))
    with pytest.raises(
        BadInput, match=f"{other.key.fingerprint.hex()}, this one is {blind.key.fingerprint.hex()}"
    ):
        blind.add(blind.zero(Real(DIM)), sealed)


def test_a_message_for_another_model_is_refused(blind):
    other = Homomorphic(reach=1.0, keys=blind.key).fitted(Real(DIM + 1), CLIENTS)
    sealed = other.seal(other.rounded(drawn(1, dim=DIM + 1), Rng(0), np.arange(1)))
    with pytest.raises(BadInput, match="another model"):
        blind.add(blind.zero(Real(DIM)), sealed)


def damaged(sealed: bytes) -> dict[str, bytes]:
    """Messages that a broken or hostile client might send."""
    head, body = sealed[:46], sealed[46:]
    return {
        "nothing": b"",
        "cut short": sealed[:-1],
        "something behind": sealed + b"x",
        "another protocol": b"FSXX" + sealed[4:],
        "no clients": head[:38] + struct.pack("<II", 0, 1) + body,
        "too many clients": head[:38] + struct.pack("<II", 13, 1) + body,
        "too few ciphertexts": head[:38] + struct.pack("<II", 1, 0),
        "too many ciphertexts": head[:38] + struct.pack("<II", 1, 2**32 - 1) + body,
        "a length beyond the end": head + struct.pack("<I", 2**31) + body[4:],
        "no length": head + struct.pack("<I", 0) + body[4:],
        "random numbers": head + body[:4] + bytes(np.random.default_rng(0).bytes(len(body) - 4)),
        "flipped bits": head + body[:40] + bytes(255 - value for value in body[40:]),
    }


KINDS = list(damaged(bytes(1000)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_message_is_refused_and_leaves_the_sum_as_it_was(blind, kind):
    total = blind.zero(Real(DIM))
    messages = blind.rounded(drawn(1), Rng(0), np.arange(1))
    blind.add(total, blind.seal(messages))
    with pytest.raises(BadInput):
        blind.add(total, damaged(blind.seal(messages))[kind])
    assert torch.equal(blind.open(Real(DIM), total), messages[0])


def test_the_sum_keeps_nothing_of_the_size_of_the_cohort(blind):
    total = blind.zero(Real(DIM))
    sizes = []
    for client in range(6):
        messages = blind.rounded(drawn(1, client), Rng(0), np.array([client]))
        total = blind.add(total, blind.seal(messages))
        sizes.append((len(total.ciphertexts), round(len(blind.close(total)) / 1000)))
    assert len(set(sizes)) == 1


def test_the_statement_hears_of_a_colluding_client(blind):
    assert any("any one client that helps the server" in text for text in blind.caveats)
    assert any("Li and Micciancio" in text for text in Homomorphic(approximate=True).caveats)
    assert any("key-holder together" in text for text in Homomorphic(blind=False).caveats)


def test_using_it_before_it_is_fitted_is_our_mistake():
    with pytest.raises(Incompatible, match="call `fitted`"):
        Homomorphic().zero(Real(3))
