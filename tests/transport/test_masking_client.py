"""What a party signs, seals and derives is bound to round, parties and purpose; each refusal stands alone."""

import os

import numpy as np
import pytest
from cohort import Cohort

from fedsynth.errors import BadInput
from fedsynth.transport.agreement import Cheated, dump, spot_checks
from fedsynth.transport.bits import frame, unframe, unpack
from fedsynth.transport.masking_client import (
    OWN,
    PAIRED,
    Party,
    commitment,
    pair_seed,
    sealing_key,
    signed_keys,
    signed_survivors,
)
from fedsynth.transport.primitives import (
    KEY,
    Identity,
    KeyPair,
    derive,
    digest,
    mask,
    seal,
    signed_by,
    unseal,
)
from fedsynth.transport.shamir import SHARE, join


def number(party):
    return party.to_bytes(4, "big")


@pytest.fixture
def cohort():
    return Cohort(4, 3)


def test_what_is_signed_and_committed_names_round_purpose_and_parties(cohort):
    terms = cohort.agreement
    assert signed_keys(terms, 3, b"keys") == digest(terms.context, b"keys", number(3), b"keys")
    assert signed_survivors(terms, b"list") == digest(terms.context, b"survivors", b"list")
    assert commitment(terms, 1, 2, OWN, b"share") == digest(
        terms.context, OWN, number(1), number(2), b"share"
    )
    assert (OWN, PAIRED) == (b"own", b"paired")


def test_two_parties_derive_one_mask_and_two_keys(cohort):
    terms = cohort.agreement
    assert pair_seed(terms, b"s" * 32, 7, 300) == pair_seed(terms, b"s" * 32, 300, 7)
    assert pair_seed(terms, b"s" * 32, 7, 300) == derive(
        b"s" * 32, terms.context, b"mask" + number(7) + number(300)
    )
    assert sealing_key(terms, b"s" * 32, 7, 300) == derive(
        b"s" * 32, terms.context, b"seal" + number(7) + number(300)
    )
    assert sealing_key(terms, b"s" * 32, 7, 300) != sealing_key(terms, b"s" * 32, 300, 7)


def test_a_party_begins_each_round_once_and_remembers_the_last(cohort):
    member = Party(0, cohort.members[0].identity)
    assert member.minimum == 2 and member.last == -1
    member.begin(cohort.agreement)
    assert member.last == cohort.agreement.number
    with pytest.raises(Cheated, match=r"round 0 was asked again \(the last was 0\)"):
        member.begin(cohort.agreement)


def test_a_party_agrees_to_its_minimum_and_not_to_less(cohort):
    assert Party(0, cohort.members[0].identity, minimum=3).begin(cohort.agreement).number == 0
    with pytest.raises(Cheated, match="a sum over 3 parties was asked for; this one agrees to 4 or more"):
        Party(0, cohort.members[0].identity, minimum=4).begin(cohort.agreement)


def test_a_party_takes_part_under_its_own_identity_only(cohort):
    for stranger in (Party(0, Identity.fresh()), Party(9, cohort.members[0].identity)):
        with pytest.raises(Cheated, match="with another identity, or not at all"):
            stranger.begin(cohort.agreement)
        assert stranger.last == -1


def test_stages_come_in_their_order_and_end():
    cohort = Cohort(4, 3)
    for stage in ("share", "mask", "confirm", "reveal", "nonsense"):
        with pytest.raises(Cheated, match=f"stage '{stage}' was asked of party 0, which expects advertise"):
            cohort.parties[0].answer(stage, b"")
    cohort.run()
    with pytest.raises(Cheated, match="which expects nothing more"):
        cohort.parties[0].answer("advertise", b"")


def test_the_advertised_keys_are_signed_and_different(cohort):
    sent = cohort.parties[2].answer("advertise", b"")
    keys, signature = sent[: 2 * KEY], sent[2 * KEY :]
    assert signed_by(cohort.agreement.roster[2], signature, signed_keys(cohort.agreement, 2, keys))
    assert (
        keys[:KEY] != keys[KEY:]
        and keys == cohort.parties[2]._masking.public + cohort.parties[2]._sealing.public
    )


def shared(cohort, party=1):
    cohort.run_until("share")
    return [unframe(piece) for piece in unframe(cohort.answer(party, cohort.server.requests()[party]))[1:]]


def test_shares_are_for_all_holders_committed_and_sealed_for_each(cohort):
    pieces = shared(cohort)
    party, terms = cohort.parties[1], cohort.agreement
    assert [int.from_bytes(piece[0], "big") for piece in pieces] == [0, 1, 2, 3]
    assert pieces[1][3] == b"" and len(party._held[1]) == 2 * SHARE  # its own stay with it
    for holder in (0, 2, 3):
        secret = party._sealing.agree(cohort.parties[holder]._sealing.public)
        _, own, paired, sealed = pieces[holder]
        key = sealing_key(terms, secret, 1, holder)
        cohort.parties[holder]._keys = party._keys
        opened = cohort.parties[holder]._sealing_key(1, holder)
        assert key == opened
        shares = unseal(key, sealed, terms.context)
        assert own == commitment(terms, 1, holder, OWN, shares[:SHARE])
        assert paired == commitment(terms, 1, holder, PAIRED, shares[SHARE:])


def test_shares_open_the_two_secrets_of_their_owner():
    cohort = Cohort(4, 3)
    cohort.run_until("confirm")
    held = {holder: cohort.parties[holder]._held[1] for holder in (0, 1, 3)}
    assert join({h: shares[:SHARE] for h, shares in held.items()}, 3) == cohort.parties[1]._own
    assert join({h: shares[SHARE:] for h, shares in held.items()}, 3) == cohort.parties[1]._masking.secret


def entries(cohort):
    cohort.run_until("share")
    return unframe(cohort.server.requests()[0])


def test_a_party_that_is_named_twice_is_seen(cohort):
    given = entries(cohort)
    with pytest.raises(Cheated, match="party 1 is in the cohort twice"):
        cohort.parties[0].answer("share", frame([*given, given[1]]))


def test_a_party_that_nobody_knows_is_seen(cohort):
    given = entries(cohort)
    with pytest.raises(Cheated, match="party 9 is not on the roster"):
        cohort.parties[0].answer("share", frame([*given, number(9) + given[1][4:]]))


def test_a_cohort_of_the_threshold_is_enough_and_a_smaller_one_is_not():
    for kept, enough in ((3, True), (2, False)):
        cohort = Cohort(4, 3)
        request = frame(entries(cohort)[:kept])
        if enough:
            assert cohort.parties[0].answer("share", request)
        else:
            with pytest.raises(Cheated, match="a cohort of 2: fewer than the 3 agreed on"):
                cohort.parties[0].answer("share", request)


def test_two_parties_with_the_same_masking_key_are_seen():
    cohort = Cohort(4, 3)
    one, other = cohort.parties[1], cohort.parties[2]
    other._masking = one._masking
    with pytest.raises(Cheated, match="two parties have the same keys"):
        cohort.parties[0].answer("share", frame(entries(cohort)))


def at_mask(cohort):
    cohort.run_until("mask")
    return unframe(cohort.server.requests()[0])


def test_the_stage_mask_needs_a_vector_of_the_agreed_length(cohort):
    request = frame(at_mask(cohort))
    with pytest.raises(BadInput, match="needs the party's vector"):
        cohort.parties[0].answer("mask", request)
    with pytest.raises(BadInput, match=r"a vector of shape \(6,\): the round sums 7 numbers"):
        cohort.parties[1].answer("mask", request, np.zeros(6, dtype=np.uint32))


def test_a_share_from_no_neighbor_or_a_second_one_is_seen():
    for change in (lambda given: [*given, given[0]], lambda given: [number(9) + given[0][4:], *given]):
        cohort = Cohort(4, 3)
        given = at_mask(cohort)
        with pytest.raises(Cheated, match="which is no neighbor or sent one already"):
            cohort.parties[0].answer("mask", frame(change(given)), cohort.vectors[0])


def test_a_sealed_message_of_another_length_is_no_pair_of_shares(cohort):
    given = at_mask(cohort)
    key = cohort.parties[1]._sealing_key(1, 0)
    given[0] = number(1) + seal(key, bytes(2 * SHARE + 1), cohort.agreement.context)
    with pytest.raises(Cheated, match="the share from party 1 was not sealed by it"):
        cohort.parties[0].answer("mask", frame(given), cohort.vectors[0])


def test_two_neighbors_are_enough_where_three_must_open_and_one_is_not():
    for kept, enough in ((2, True), (1, False)):
        cohort = Cohort(4, 3)
        given = at_mask(cohort)[:kept]
        if enough:
            assert cohort.parties[0].answer("mask", frame(given), cohort.vectors[0])
        else:
            with pytest.raises(Cheated, match="1 neighbors shared their secrets: with fewer than 2"):
                cohort.parties[0].answer("mask", frame(given), cohort.vectors[0])


def test_a_masked_vector_is_the_vector_its_own_mask_and_one_for_each_neighbor():
    cohort = Cohort(4, 3, dim=50)
    request = frame(at_mask(cohort))
    for party in (0, 2):
        terms, one = cohort.agreement, cohort.parties[party]
        wide = cohort.vectors[party].astype(np.int64) + 3 * 2**20  # higher bits are cut off
        sent = unpack(
            one.answer("mask", request if party == 0 else cohort.server.requests()[party], wide), 50, 20
        )
        expected = cohort.vectors[party] + mask(derive(one._own, terms.context, OWN), 50)
        for other in set(range(4)) - {party}:
            secret = one._masking.agree(cohort.parties[other]._masking.public)
            between = mask(pair_seed(terms, secret, party, other), 50)
            expected = expected - between if party > other else expected + between
        assert sent.tolist() == (expected & np.uint32(2**20 - 1)).tolist()


def test_survivors_are_signed_as_they_were_shown(cohort):
    cohort.run_until("confirm")
    signature = cohort.parties[0].answer("confirm", dump([0, 1, 3]))
    assert signed_by(
        cohort.agreement.roster[0], signature, signed_survivors(cohort.agreement, dump([0, 1, 3]))
    )
    assert cohort.parties[0].survivors == (0, 1, 3)


def confirmed(cohort, parties, survivors=(0, 1, 2, 3)):
    cohort.run_until("confirm")
    signatures = {party: cohort.parties[party].answer("confirm", dump(survivors)) for party in parties}
    return [number(party) + signature for party, signature in signatures.items()]


def test_the_threshold_must_have_confirmed_before_anything_is_revealed():
    cohort = Cohort(4, 3)
    listed = confirmed(cohort, [0, 1, 2])
    assert len(unframe(cohort.parties[0].answer("reveal", frame(listed)))) == 4
    with pytest.raises(Cheated, match="2 parties confirmed the survivors; 3 must agree"):
        cohort.parties[1].answer("reveal", frame(listed[:2]))
    with pytest.raises(Cheated, match="2 parties confirmed"):
        cohort.parties[2].answer("reveal", frame([listed[0], listed[1], listed[1]]))


def test_a_confirmation_of_who_did_not_survive_does_not_count():
    cohort = Cohort(5, 3)
    listed = confirmed(cohort, [0, 1, 2], survivors=(0, 1, 2))
    with pytest.raises(Cheated, match="party 4 did not confirm"):
        cohort.parties[0].answer("reveal", frame([*listed, number(4) + bytes(64)]))


def test_a_forged_confirmation_is_seen():
    cohort = Cohort(4, 3)
    listed = confirmed(cohort, [0, 1, 2])
    with pytest.raises(Cheated, match="party 3 did not confirm"):
        cohort.parties[0].answer("reveal", frame([*listed, number(3) + os.urandom(64)]))


def test_what_is_revealed_opens_own_masks_of_survivors_and_neighbor_masks_of_the_others():
    cohort = Cohort(4, 3)
    listed = confirmed(cohort, [0, 1, 3], survivors=(0, 1, 3))
    held = dict(cohort.parties[0]._held)
    revealed = unframe(cohort.parties[0].answer("reveal", frame(listed)))
    assert revealed == [
        number(owner) + (b"\0" + held[owner][SHARE:] if owner == 2 else b"\1" + held[owner][:SHARE])
        for owner in range(4)
    ]


def test_who_has_few_neighbors_left_confirms_nothing():
    """Above a hundred parties each masks with some: enough of those must survive too."""
    cohort = Cohort(110, 90, dim=3)
    cohort.run_until("confirm")
    party, needed = cohort.parties[0], cohort.agreement.degree[1]
    spare = len(party._neighbors) + 1 - needed
    for gone, enough in ((spare + 1, False), (spare, True)):
        survivors = sorted(set(range(110)) - set(party._neighbors[:gone]))
        if enough:
            assert party.answer("confirm", dump(survivors))
        else:
            with pytest.raises(Cheated, match=f"{needed - 1} neighbors of party 0 survived: too few to hide"):
                party.answer("confirm", dump(survivors))
        party._done -= 1


def test_some_who_are_no_neighbors_are_watched_too():
    cohort = Cohort(160, 150, dim=3)
    cohort.run_until("share")
    party = cohort.parties[0]
    party.answer("share", cohort.server.requests()[0])
    assert {0, *party._neighbors} < party._watched
    others = set(range(160)) - {0, *party._neighbors}
    assert len(party._watched & others) == spot_checks(160, 150, 0) < len(others)


def test_a_second_list_with_made_up_confirmations_is_believed_by_nobody():
    """Half of the parties sign a list without party 7; a server makes up what is missing to the threshold."""
    cohort = Cohort(110, 100, dim=3)
    cohort.run_until("confirm")
    others = [party for party in range(110) if party != 7]
    signed = {party: cohort.parties[party].answer("confirm", dump(others)) for party in others[:65]}
    entries = [number(party) + signed.get(party, os.urandom(64)) for party in others[:100]]
    for party in others[:65]:
        with pytest.raises(Cheated, match="did not confirm the survivors"):
            cohort.parties[party].answer("reveal", frame(entries))


def test_keys_of_a_round_are_fresh():
    one, other = Cohort(3, 2), Cohort(3, 2)
    assert one.parties[0]._masking != one.parties[0]._sealing and len(one.parties[0]._own) == KEY
    assert isinstance(one.parties[0]._masking, KeyPair) and one.parties[0]._own != other.parties[0]._own
