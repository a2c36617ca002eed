"""A server that lies and clients that cheat: the honest party says so clearly, and nothing opens that should not."""

import os
from dataclasses import replace

import numpy as np
import pytest
from cohort import Cohort

from fedsynth.errors import BadInput, Incompatible
from fedsynth.transport.agreement import Aborted, Agreement, Cheated, dump
from fedsynth.transport.bits import frame, pack, unframe
from fedsynth.transport.masking_client import Party
from fedsynth.transport.primitives import Identity, KeyPair


def at_share(count=4, threshold=3):
    cohort = Cohort(count, threshold)
    cohort.run_stage()
    return cohort, unframe(cohort.server.requests()[0])


# a malicious server


def test_survivors_with_too_little_noise_between_them_are_refused():
    cohort = Cohort(4, 3, members={0: 1, 1: 1, 2: 1, 3: 9}, least=10)
    cohort.run_until("confirm")
    with pytest.raises(Cheated, match="3 clients in the sum: the noise is shared out over at least 10"):
        cohort.parties[0].answer("confirm", dump([0, 1, 2]))
    assert cohort.parties[1].answer("confirm", dump([0, 1, 3]))


def test_parties_that_were_told_other_numbers_of_clients_do_not_believe_each_other():
    cohort = Cohort(3, 2, members={0: 1, 1: 1, 2: 9}, least=3)
    other = replace(cohort.agreement, members={0: 1, 1: 1, 2: 8})
    party = Party(0, cohort.members[0].identity).begin(other)
    party.answer("advertise", b"")
    cohort.run_stage()
    with pytest.raises(Cheated, match="not signed"):
        party.answer("share", cohort.server.requests()[0])


def test_a_cohort_of_one_is_refused():
    cohort, entries = at_share()
    alone = [entry for entry in entries if int.from_bytes(entry[:4], "big") == 0]
    with pytest.raises(Cheated, match="a cohort of 1"):
        cohort.parties[0].answer("share", frame(alone))


def test_a_roster_that_allows_sums_of_one_or_split_views_is_refused():
    roster = {party: Identity.fresh().public for party in range(4)}
    with pytest.raises(Incompatible, match="at least 2"):
        Agreement("run", 0, 5, 20, 1, roster)
    with pytest.raises(Incompatible, match="different survivors"):
        Agreement("run", 0, 5, 20, 2, roster)
    with pytest.raises(Incompatible, match="different survivors"):
        Agreement("run", 0, 5, 20, 3, roster, colluders=2)


def test_a_smaller_sum_than_a_party_agreed_to_is_refused():
    cohort = Cohort(4, 3)
    cautious = Party(0, cohort.members[0].identity, minimum=4)
    with pytest.raises(Cheated, match="agrees to 4 or more"):
        cautious.begin(cohort.agreement)


def test_a_round_is_not_played_twice():
    cohort = Cohort(4, 3, number=5)
    with pytest.raises(Cheated, match="asked again"):
        cohort.members[0].begin(cohort.agreement)
    restarted = Party(0, cohort.members[0].identity, last=5)  # what was written down before
    with pytest.raises(Cheated, match="asked again"):
        restarted.begin(cohort.agreement)


@pytest.mark.parametrize("stage", ["advertise", "share", "mask", "confirm", "reveal"])
def test_no_stage_is_answered_twice(stage):
    cohort = Cohort(4, 3)
    cohort.run_until(stage)
    request = cohort.server.requests()[0]
    cohort.answer(0, request)
    with pytest.raises(Cheated, match="which expects"):
        cohort.answer(0, request)


def test_swapped_keys_are_seen():
    cohort, entries = at_share()
    mine = KeyPair.fresh().public + KeyPair.fresh().public
    swapped = [entry if at != 1 else entry[:4] + mine + entry[68:] for at, entry in enumerate(entries)]
    with pytest.raises(Cheated, match="party 1 are not signed"):
        cohort.parties[0].answer("share", frame(swapped))


def test_keys_of_a_stranger_under_a_members_name_are_seen():
    cohort, entries = at_share()
    other = Cohort(4, 3)
    foreign = other.parties[1].answer("advertise", b"")
    with pytest.raises(Cheated, match="party 1 are not signed"):
        cohort.parties[0].answer("share", frame([entries[0], entries[1][:4] + foreign, *entries[2:]]))


def test_keys_of_an_earlier_round_are_seen():
    first = Cohort(4, 3)
    roster, members = first.agreement.roster, first.members
    first.run_stage()
    old = unframe(first.server.requests()[0])
    second = Agreement("run", 1, 7, 20, 3, roster)
    party = members[0].begin(second)
    party.answer("advertise", b"")
    with pytest.raises(Cheated, match="not signed"):
        party.answer("share", frame(old))


def test_own_keys_that_were_replaced_are_seen():
    cohort, entries = at_share()
    with pytest.raises(Cheated, match="other keys of party 0"):
        cohort.parties[0].answer("share", frame(entries[1:]))


def test_shares_that_were_changed_on_the_way_are_seen():
    cohort = Cohort(4, 3)
    cohort.run_until("mask")
    entries = unframe(cohort.server.requests()[0])
    entries[0] = entries[0][:-1] + bytes([entries[0][-1] ^ 1])
    with pytest.raises(Cheated, match="not sealed by it"):
        cohort.parties[0].answer("mask", frame(entries), cohort.vectors[0])


def test_withheld_shares_that_would_leave_a_vector_bare_are_seen():
    cohort = Cohort(4, 3)
    cohort.run_until("mask")
    with pytest.raises(Cheated, match="would not hide"):
        cohort.parties[0].answer("mask", frame([]), cohort.vectors[0])


@pytest.mark.parametrize(
    ("survivors", "reason"),
    [
        ([1, 2, 3], "said to have dropped out"),
        ([0, 1], "must not be opened"),
        ([0, 1, 2, 9], "without having been"),
    ],
)
def test_survivors_that_must_not_be_opened_are_refused(survivors, reason):
    cohort = Cohort(4, 3)
    cohort.run_until("confirm")
    with pytest.raises(Cheated, match=reason):
        cohort.parties[0].answer("confirm", dump(survivors))


def test_different_survivors_shown_to_different_parties_reveal_nothing():
    """Told to some that party 0 is alive and to others that it dropped out, a server could have both its masks."""
    cohort = Cohort(5, 4)
    cohort.run_until("confirm")
    shown = {0: [0, 1, 2, 3, 4], 1: [0, 1, 2, 3, 4], 2: [1, 2, 3, 4], 3: [1, 2, 3, 4], 4: [1, 2, 3, 4]}
    signatures = {
        party: cohort.parties[party].answer("confirm", dump(survivors)) for party, survivors in shown.items()
    }
    for party, survivors in shown.items():
        alike = [other for other in shown if shown[other] == survivors]
        for chosen in (alike, list(signatures)):
            listed = frame([other.to_bytes(4, "big") + signatures[other] for other in chosen])
            with pytest.raises(Cheated, match="confirm"):
                cohort.parties[party].answer("reveal", listed)
            cohort.parties[party]._done -= 1


def test_nobody_is_both_alive_and_dropped_out():
    """For each other party exactly one of the two secrets is revealed."""
    cohort = Cohort(5, 3)
    cohort.run_until("reveal", {"mask": [2]})
    pieces = unframe(cohort.answer(0, cohort.server.requests()[0]))
    revealed = {int.from_bytes(piece[:4], "big"): piece[4] for piece in pieces}
    assert revealed == {0: 1, 1: 1, 2: 0, 3: 1, 4: 1}
    assert not cohort.parties[0]._held


# malicious clients


@pytest.mark.parametrize(
    "broken",
    [
        lambda sent: sent[:-1],
        lambda sent: sent + b"\0",
        lambda sent: b"",
        lambda sent: pack(np.zeros(7, np.uint32), 24),
    ],
    ids=["too short", "too long", "empty", "wrong modulus"],
)
def test_a_vector_that_does_not_fit_leaves_its_sender_out(broken):
    cohort = Cohort(5, 3)
    opened = cohort.run(changes={"mask": {2: broken}})
    assert "expected" in cohort.refused[2] or "numbers of 20 bits" in cohort.refused[2]
    assert cohort.server.survivors == (0, 1, 3, 4)
    assert opened.tolist() == cohort.plain_sum().tolist()


def garbage(sent):
    pieces = unframe(sent)
    return frame([pieces[0][:5] + os.urandom(len(pieces[0]) - 5), *pieces[1:]])


def test_garbage_shares_are_seen_named_and_left_out():
    cohort = Cohort(5, 3)
    opened = cohort.run(changes={"reveal": {1: garbage}})
    assert "not the one it was given" in cohort.refused[1]
    assert opened.tolist() == cohort.plain_sum().tolist()


def test_with_too_many_garbage_shares_the_round_aborts():
    cohort = Cohort(5, 4)
    with pytest.raises(Aborted, match="3 of 5"):
        cohort.run(changes={"reveal": {1: garbage, 2: garbage}})


def test_a_party_whose_shares_make_no_secret_is_named():
    cohort = Cohort(5, 3)
    cohort.run_stage()
    cohort.parties[3]._own, kept = os.urandom(32), cohort.parties[3]._own
    cohort.run_stage()
    cohort.server._sharings[3].own = kept  # it committed to another secret than it shared
    cohort.run_until("reveal")
    cohort.run_stage()
    with pytest.raises(Aborted, match="party 3 gave out"):
        cohort.server.open()


def test_forged_keys_and_confirmations_count_as_not_sent():
    cohort = Cohort(5, 3)
    flip = lambda sent: sent[:-1] + bytes([sent[-1] ^ 1])  # noqa: E731
    opened = cohort.run(changes={"advertise": {0: flip}, "confirm": {1: flip}})
    assert "not signed" in cohort.refused[0] and "no valid confirmation" in cohort.refused[1]
    assert opened.tolist() == cohort.plain_sum([1, 2, 3, 4]).tolist()


def test_shares_for_others_than_neighbors_are_refused():
    cohort = Cohort(5, 3)
    cohort.run_stage()
    drop_one = lambda sent: frame(unframe(sent)[:-1])  # noqa: E731
    cohort.run_stage(changed={4: drop_one})
    assert "than its neighbors" in cohort.refused[4]


def test_messages_of_strangers_and_second_messages_are_refused():
    cohort = Cohort(4, 3)
    with pytest.raises(BadInput, match="not on the roster"):
        cohort.server.take(9, b"")
    sent = cohort.parties[0].answer("advertise", b"")
    cohort.server.take(0, sent)
    with pytest.raises(BadInput, match="twice"):
        cohort.server.take(0, sent)


def test_a_vector_above_the_clip_goes_into_the_sum_unseen():
    """What masks hide is hidden also if it is too long: honest clipping by the parties is an assumption, and named."""
    cohort = Cohort(3, 2)
    cohort.vectors[1] = np.full(7, 2**19, dtype=np.uint32)
    assert cohort.run().tolist() == cohort.plain_sum().tolist()


def test_made_up_keys_of_a_stranger_far_away_are_found_by_chance_and_those_of_a_neighbor_always():
    cohort = Cohort(160, 150, dim=3)
    cohort.run_stage()
    request = cohort.server.requests()[0]
    entries = {int.from_bytes(entry[:4], "big"): entry for entry in unframe(request)}
    forged = 77
    entries[forged] = entries[forged][:4] + os.urandom(64) + entries[forged][68:]
    present = sorted(entries)
    near = cohort.agreement.neighbors(present)
    assert len(near[0]) < 120  # else everybody is a neighbor
    found = {}
    for party in present:
        if party == forged:
            continue
        try:
            cohort.parties[party].answer("share", frame([entries[one] for one in present]))
            found[party] = False
        except Cheated as error:
            assert "party 77 are not signed" in str(error)
            found[party] = True
    assert all(found[party] for party in near[forged])
    far = [found[party] for party in found if party not in near[forged]]
    assert 0.2 < sum(far) / len(far) < 0.95
