"""A cohort of parties and a server in one process, stage by stage, so that tests can lie in between."""

import numpy as np

from fedsynth.errors import BadInput
from fedsynth.transport.agreement import STAGES, Agreement
from fedsynth.transport.masking_client import Party
from fedsynth.transport.masking_server import ServerRound
from fedsynth.transport.primitives import Identity


class Cohort:
    def __init__(self, count, threshold, dim=7, bits=20, number=0, colluders=0, seed=0, **more):
        identities = [Identity.fresh() for _ in range(count)]
        roster = {party: identity.public for party, identity in enumerate(identities)}
        self.agreement = Agreement("run", number, dim, bits, threshold, roster, colluders, **more)
        self.members = [Party(party, identity) for party, identity in enumerate(identities)]
        self.parties = {member.number: member.begin(self.agreement) for member in self.members}
        self.server = ServerRound(self.agreement)
        rng = np.random.default_rng(seed)
        self.vectors = {party: rng.integers(0, 2**bits, dim, dtype=np.uint32) for party in range(count)}
        self.refused = {}

    def answer(self, party, request):
        vector = self.vectors[party] if self.server.stage == "mask" else None
        return self.parties[party].answer(self.server.stage, request, vector)

    def run_stage(self, dropped=(), changed=None):
        """One stage; `changed` maps a party to what is done to its answer on the way."""
        stage = self.server.stage
        for party, request in self.server.requests().items():
            if party in dropped:
                continue
            answer = self.answer(party, request)
            answer = (changed or {}).get(party, lambda sent: sent)(answer)
            try:
                self.server.take(party, answer)
            except BadInput as error:
                self.refused[party] = str(error)
        self.server.close()
        return stage

    def run_until(self, stage, drops=None):
        while self.server.stage != stage:
            self.run_stage((drops or {}).get(self.server.stage, ()))

    def run(self, drops=None, changes=None):
        for stage in STAGES:
            self.run_stage((drops or {}).get(stage, ()), (changes or {}).get(stage))
        return self.server.open()

    def plain_sum(self, parties=None):
        chosen = self.server.survivors if parties is None else parties
        total = sum(self.vectors[party].astype(np.int64) for party in chosen)
        return total % 2**self.agreement.bits
