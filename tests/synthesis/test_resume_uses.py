"""What a server that is started again knows of its clients from its ledger and its checkpoint."""

from dataclasses import replace

import numpy as np

from fedsynth.federation.client_uses import ClientUses
from fedsynth.privacy.ledger import Ledger
from fedsynth.rng import Rng
from fedsynth.synthesis.resume_uses import with_paid_uses


def test_a_client_lost_twice_in_a_version_is_still_charged_twice(build):
    algorithm = build("dpd_fvae", buffer=2, concurrency=4, turns=3)
    lost = ClientUses.fresh(10).missed(np.array([3, 1])).missed(np.array([1]))
    state = replace(algorithm.init(Rng(1)), standing=lost.to_tensors())
    found = with_paid_uses(state, algorithm, Ledger(None), "run", asked_again=True)
    assert ClientUses.from_tensors(found.standing, 10).charged.tolist() == [0, 2, 0, 1, 0, 0, 0, 0, 0, 0]
