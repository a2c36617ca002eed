"""The transport as the loop uses it: a simulation in which one process plays all parties."""

import numpy as np
import pytest
import torch

from fedsynth.errors import Incompatible
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.distributed import DistributedGaussian
from fedsynth.rng import Rng
from fedsynth.transport.agreement import Aborted
from fedsynth.transport.bits import pack
from fedsynth.transport.registry import transport_named
from fedsynth.transport.ring import Parties, Ring
from fedsynth.transport.secagg import SecAgg
from fedsynth.transport.wire import Real

RING = Ring(50, 20, Parties(5, 4))


def summed(transport, wire, messages, chunk=2):
    total = transport.zero(wire)
    for part in messages.split(chunk):
        total = transport.absorb(wire, total, part, torch.ones(len(part)))
    return transport.open(wire, total)


@pytest.mark.parametrize("arrived", [5, 4])
def test_the_opened_sum_is_the_sum_in_the_ring(arrived):
    transport = transport_named("secagg").fitted(RING, 5)
    messages = torch.randint(0, 2**20, (arrived, 50), dtype=torch.int32)
    for _ in range(3):  # the same parties, other rounds
        opened = summed(transport, RING, messages)
        assert opened.dtype == torch.int64
        assert torch.equal(opened, RING.add(RING.zero(), messages, torch.ones(arrived)))


def test_too_few_arrivals_abort_and_nothing_opens():
    transport = SecAgg().fitted(RING, 5)
    with pytest.raises(Aborted, match="3 of 5 parties"):
        summed(transport, RING, torch.zeros(3, 50, dtype=torch.int32))
    with pytest.raises(Incompatible, match="more messages"):
        summed(transport, RING, torch.zeros(6, 50, dtype=torch.int32))


def test_the_mechanism_and_its_noise_go_through_unchanged():
    mechanism = DistributedGaussian(Clip(1.0), 0.0, 30, Parties(4, 3), 4)
    wire = mechanism.wire(30)
    x = torch.randn(4, 30, generator=torch.Generator().manual_seed(1))
    messages = mechanism.privatize(x, mechanism.init(), Rng(1), np.arange(4))
    opened = summed(SecAgg().fitted(wire, 4), wire, messages)
    mean, _ = mechanism.estimate(opened, 1.0, mechanism.init(), Rng())
    torch.testing.assert_close(mean.float(), mechanism.clip.apply(x).sum(0), atol=1e-3, rtol=0)


def test_it_carries_rings_only_and_takes_its_threshold_from_the_mechanism():
    assert SecAgg().carries == ("ring",) and SecAgg().fitted(Real(3), 9).parties is None
    assert SecAgg().fitted(RING, 9).parties == Parties(5, 4)
    with pytest.raises(Incompatible, match="different survivors"):
        SecAgg().fitted(Ring(3, 20, Parties(6, 3)), 6)
    with pytest.raises(Incompatible, match="fitted"):
        SecAgg().zero(RING)


def test_masked_messages_cannot_be_weighted():
    transport = SecAgg().fitted(RING, 5)
    with pytest.raises(Incompatible, match="weighted"):
        transport.absorb(RING, transport.zero(RING), torch.zeros(1, 50), torch.tensor([0.5]))


def test_the_statement_is_told_the_threshold_and_what_helpers_can_do():
    text = " ".join(SecAgg().fitted(Ring(3, 20, Parties(10, 8, 2)), 10).caveats)
    assert "up to 2 parties" in text and "at least 8 of the 10" in text and "6 honest" in text
    assert "nobody can check" in text and "100 parties" not in text
    assert "100 parties" in " ".join(SecAgg().fitted(Ring(3, 20, Parties(200, 180)), 200).caveats)


def words(*parties):
    ring = Ring(3, 20, Parties(*parties))
    return " ".join(SecAgg().fitted(ring, 99).caveats)


def test_the_statement_says_whose_noise_is_not_counted():
    alone, many = words(5, 5), words(30, 30, 0, 10)
    assert "but for 1: a participant knows its own share and" in alone
    assert "4 honest" in alone and "1.12 times" in alone
    assert "but for 10: a participant knows the shares of its own clients, 10 at most, and" in many
    assert "20 honest" in many and "1.22 times" in many
    helped, trusting = words(10, 8, 2), words(10, 8, 0, 0)
    assert "but for the 2 that may be known to whoever helps the server: that of at least 6" in helped
    assert "but for none: that of at least 8" in trusting
    assert "The server saw sums" in trusting and "server and up to 2 parties that help it saw sums" in helped
    assert "With more than 100" not in words(100, 90) and "With more than 100" in words(101, 91)
    assert SecAgg().caveats == ()


def test_parties_are_shown_the_terms_that_the_noise_was_made_for():
    ring = Ring(50, 20, Parties(5, 4, 1), share=2.5)
    total = SecAgg().fitted(ring, 5).zero(ring)
    terms = total.server.agreement
    assert (terms.dim, terms.bits, terms.threshold, terms.colluders, terms.noise) == (50, 20, 4, 1, 2.5)
    assert all(party.agreement == terms for party in total.parties.values()) and len(total.parties) == 5


def test_without_shared_noise_all_parties_must_be_in_the_sum():
    assert SecAgg().fitted(Ring(3, 20), 6).parties == Parties.among(6, threshold=6)
    assert SecAgg().fitted(Ring(3, 20), 60).parties == Parties.among(60, threshold=60)


def test_a_message_takes_its_packed_bits():
    transport = SecAgg().fitted(RING, 5)
    packed = len(pack(np.zeros(50, np.uint32), 20))
    assert transport.bytes_up(RING, 200) == packed and transport.bytes_down(7) == 7
