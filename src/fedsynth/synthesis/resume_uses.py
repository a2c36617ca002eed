"""Read a ledger for clients that outlive a version, when their server is started again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedsynth.errors import BudgetExhausted
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.client_uses import ClientUses
from fedsynth.federation.state import ServerState
from fedsynth.privacy.ledger import EVERYONE, Ledger


def with_paid_uses(
    state: ServerState, algorithm: Algorithm, ledger: Ledger, run: str, *, asked_again: bool
) -> ServerState:
    """The state in which no client was used less often than the ledger shows.

    What a client sent and paid for is in the checkpoint and costs it once; a sum that was noised by the server before a
    crash is noised anew, and that is one more release for all in it. Where clients are `asked_again`, those without a
    use left are not under way any more. Noise that cancels over rounds shows earlier clients too: it is drawn once.
    """
    schedule = algorithm.schedule
    standing = ClientUses.from_tensors(state.standing, schedule.clients)
    own = [line for line in ledger.lines() if line.run == run and line.holder not in EVERYONE and line.round]
    finished = [line for line in own if line.round <= state.version]
    again = [line for line in own if line.trust != "local" and line.round > state.version]
    each_use = max(1, len(algorithm.charges()))
    holders = np.array([int(line.holder) for line in (*finished, *again)], dtype=np.int64)
    uses = np.bincount(holders, minlength=schedule.clients) // each_use
    most = schedule.participations(algorithm.rounds)
    paid = np.unique(np.array([int(line.holder) for line in again], dtype=np.int64))
    spent = paid[uses[paid] >= most]
    lost = f"round {state.version + 1} was paid for and lost"
    if len(paid) and schedule.separation > 1:
        raise BudgetExhausted(
            f"{lost}, and its noise, which cancels over rounds, is not drawn a second time; the last finished round is "
            "in the checkpoint"
        )
    if len(spent) and not asked_again:
        raise BudgetExhausted(
            f"{lost}, and some of its clients have no use left to pay for it again (at most {most}); the last finished "
            "round is in the checkpoint"
        )
    unpaid = standing.lost[~np.isin(standing.lost, paid)]  # one that was lost twice stays so
    standing = replace(standing.spared(spent), lost=unpaid)
    return replace(state, standing=standing.at_least(uses).to_tensors())
