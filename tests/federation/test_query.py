from functools import partial

import numpy as np
import pytest
import torch

from fedsynth.data.clients import Padded
from fedsynth.errors import BudgetExhausted
from fedsynth.federation.loop import ask
from fedsynth.federation.query import Query
from fedsynth.federation.schedule import Everyone, FixedCohort
from fedsynth.federation.state import ServerState
from fedsynth.federation.statistics import Holdings, LabelShares, RecordCount, as_probabilities
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.distributed import DistributedGaussian
from fedsynth.privacy.local import LocalGaussian, LocalRecords
from fedsynth.privacy.mechanism import When
from fedsynth.privacy.none import NoPrivacy
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.transport.clear import Clear
from fedsynth.transport.ring import Parties
from noise_scale import fits, independent

NOWHERE = ServerState(0, {})
PRESENT = torch.tensor([[True, True], [True, False], [False, False]])


def answer(query, clients, chunk=None):
    bills = []
    got = ask(
        query, InProcess(clients, Rng(1), chunk=chunk), NOWHERE, Rng(1), lambda *bill: bills.append(bill)
    )
    return got, bills


def plain(what, statistic, dim, unit="client", noise=0.0):
    return Query(what, statistic, dim, CentralGaussian(Clip(1.0), noise), 10, unit)


@pytest.mark.parametrize("chunk", [1, 3, 10])
def test_records_are_counted_one_by_one(ten, chunk):
    got, _ = answer(plain("records", RecordCount(), 1, "record"), ten["table"], chunk)
    assert float(got) == pytest.approx(38, abs=1e-4)


def test_a_clients_count_is_clipped_to_one(ten):
    got, _ = answer(plain("records", RecordCount(), 1), ten["table"])
    assert float(got) == pytest.approx(9, abs=1e-4)  # ten clients, one of them empty


def test_label_shares_give_each_client_one_vote(ten):
    clients = ten["table"]
    got, _ = answer(plain("balance", LabelShares(2), 2), clients)
    expected = torch.zeros(2)
    for client in range(10):
        data = clients.gather([client])
        labels = data.y[data.mask]
        if len(labels):
            expected += torch.bincount(labels, minlength=2) / len(labels)
    torch.testing.assert_close(got.float(), expected, atol=1e-4, rtol=0)


def test_label_shares_never_exceed_the_clip(ten):
    shares = LabelShares(2)(ten["table"].gather(np.arange(10)))
    assert (shares.norm(dim=1) <= 1).all() and shares[0].sum() == 0


def test_an_answer_is_paid_for_at_its_unit_and_without_amplification(ten):
    query = plain("records", RecordCount(), 1, "record", noise=2.0)
    got, bills = answer(query, ten["table"])
    ((when, (charge,), ids),) = bills
    assert (charge.release.what, charge.release.unit, when) == ("records", "record", When())
    assert charge.event == query.mechanism.release.event and len(ids) == 10
    assert float(got) != pytest.approx(38, abs=1e-3)


def noise_in_answers(mechanism, unit, rng, dim, times):
    """The noise in the answers [times, dim] to a question that every unit answers with zeros."""
    query = Query("nothing", partial(silent, dim), dim, mechanism, 3, unit)
    ids, data = np.arange(3), Padded(torch.zeros(3, 2, 1), torch.zeros(3, 2, dtype=torch.int64), PRESENT)
    answers = []
    for turn in range(times):
        own = rng.at("turn", turn)
        messages, _ = query.client_round(NOWHERE, {}, data, ids, own)
        answers.append(query.estimate(query.wire.add(query.wire.zero(), messages, torch.ones(3)), own))
    return torch.stack(answers)


def silent(dim, data):
    return torch.zeros(len(data.mask), dim)


NOISY = {
    "central": (CentralGaussian(Clip(1.0), 2.0), "client", 2.0),
    "central record": (CentralGaussian(Clip(1.0), 2.0), "record", 2.0),
    "local": (LocalGaussian(Clip(1.0), 2.0), "client", 2.0 * 3**0.5),
    "local record": (LocalRecords(Clip(1.0), 2.0), "record", 2.0 * 3**0.5),
}


@pytest.mark.parametrize("rng", [Rng(), Rng(1)])
@pytest.mark.parametrize("kind", NOISY)
def test_each_number_of_an_answer_has_noise_of_its_own(kind, rng):
    mechanism, unit, scale = NOISY[kind]
    drawn = noise_in_answers(mechanism, unit, rng, dim=3, times=800)
    assert independent(drawn)
    assert all(fits(column, scale) and not fits(column, 0.75 * scale) for column in drawn.T)


@pytest.mark.parametrize("rng", [Rng(), Rng(1)])
def test_each_number_of_a_masked_answer_has_noise_of_its_own(rng):
    mechanism = DistributedGaussian(Clip(1.0), 2.0, 3, Parties(3, 3), contributions=3, bits=24, rotate=False)
    drawn = noise_in_answers(mechanism, "client", rng, dim=3, times=800)
    scale = mechanism.share * 3**0.5
    assert independent(drawn)
    assert all(fits(column, scale) and not fits(column, 0.75 * scale) for column in drawn.T)


def test_probabilities_sum_to_one_and_lose_no_class():
    for noisy in ([30.0, -2.0, 70.0], [-1.0, -2.0, -3.0], [0.0, 0.0, 1e9]):
        chances = as_probabilities(torch.tensor(noisy))
        assert float(chances.sum()) == pytest.approx(1) and float(chances.min()) >= 0.0009


def test_no_question_is_answered_before_it_is_paid_for(ten, monkeypatch):
    happened = []
    opened = Clear.open
    monkeypatch.setattr(Clear, "open", lambda *a: happened.append("open") or opened(*a))
    query = plain("records", RecordCount(), 1)
    ask(query, InProcess(ten["table"], Rng(1)), NOWHERE, Rng(1), lambda *_: happened.append("pay"))
    assert happened == ["pay", "open"]

    def refuse(*_):
        raise BudgetExhausted("spent")

    with pytest.raises(BudgetExhausted):
        ask(query, InProcess(ten["table"], Rng(1)), NOWHERE, Rng(1), refuse)
    assert happened == ["pay", "open"]


def test_records_taken_in_pieces_are_counted_alike(ten, monkeypatch):
    whole, _ = answer(plain("records", RecordCount(), 1, "record"), ten["table"])
    monkeypatch.setattr("fedsynth.federation.query._AT_ONCE", 25)  # two records of ten clients
    assert torch.equal(answer(plain("records", RecordCount(), 1, "record"), ten["table"])[0], whole)


@pytest.mark.parametrize("rng", [Rng(), Rng(1)])
def test_a_clients_own_noise_is_added_once_however_many_pieces_its_records_make(rng, monkeypatch):
    monkeypatch.setattr("fedsynth.federation.query._AT_ONCE", 1)
    drawn = noise_in_answers(LocalRecords(Clip(1.0), 2.0), "record", rng, dim=3, times=400)
    assert fits(drawn, 2.0 * 3**0.5) and not fits(drawn, 2.0 * 6**0.5)


def test_a_records_answer_is_clipped_by_itself_and_a_clients_as_a_whole(ten):
    double = lambda data: 2.0 * data.mask.sum(1, keepdim=True).float()  # noqa: E731
    got, _ = answer(plain("records", double, 1, "record"), ten["table"])
    assert float(got) == pytest.approx(38, abs=1e-3)
    got, _ = answer(plain("records", double, 1), ten["table"])
    assert float(got) == pytest.approx(9, abs=1e-3)


def test_a_records_statistic_sees_its_own_row_and_label(ten):
    labels = lambda data: torch.nn.functional.one_hot(data.y[:, 0], 2).float() * data.mask  # noqa: E731
    got, _ = answer(plain("labels", labels, 2, "record"), ten["table"])
    whole = ten["table"].gather(np.arange(10))
    assert got.round().tolist() == torch.bincount(whole.y[whole.mask], minlength=2).tolist()
    first = lambda data: data.x[:, 0, :1].clamp(0, 1) * data.mask  # noqa: E731
    got, _ = answer(plain("first", first, 1, "record"), ten["table"])
    assert float(got) == pytest.approx(float(whole.x[..., 0][whole.mask].clamp(0, 1).sum()), abs=1e-3)


def test_a_question_without_a_mechanism_costs_nothing_and_one_with_it_its_release():
    open_question = Query("records", RecordCount(), 1, NoPrivacy(), 10)
    assert open_question.release is None and open_question.charges() == []
    asked = plain("records", RecordCount(), 1, "record", noise=2.0)
    (charge,) = asked.charges()
    assert charge.release == asked.release and charge.event == asked.mechanism.release.event
    assert (asked.release.what, asked.release.unit, asked.release.trust) == ("records", "record", "central")


def test_everyone_answers_unless_another_schedule_says_who():
    assert plain("records", RecordCount(), 1).schedule == Everyone(10)
    some = Query("records", RecordCount(), 1, NoPrivacy(), 10, among=FixedCohort(10, 3))
    assert some.schedule == FixedCohort(10, 3)


def test_a_question_needs_no_model_and_remembers_nothing():
    query = plain("records", RecordCount(), 4)
    assert query.broadcast == () and query.blank(NOWHERE) == {} and query.wire.dim == 4
    assert (query.unit, query.apart, query.learn) == ("client", False, None) and isinstance(
        query.transport, Clear
    )


def masked_records(noise=2.0):
    return DistributedGaussian(
        Clip(1.0), noise, 3, Parties(3, 3), contributions=6, bits=24, rotate=False, unit="record"
    )


@pytest.mark.parametrize("rng", [Rng(), Rng(1)])
@pytest.mark.parametrize(("at_once", "shares"), [(2**23, 1), (1, 2)])
def test_each_party_adds_its_share_to_a_masked_sum_over_records_and_a_fresh_one_to_each_piece(
    at_once, shares, rng, monkeypatch
):
    monkeypatch.setattr("fedsynth.federation.query._AT_ONCE", at_once)
    mechanism = masked_records()
    drawn = noise_in_answers(mechanism, "record", rng, dim=3, times=600)
    scale = mechanism.share * (3 * shares) ** 0.5
    assert (
        independent(drawn)
        and fits(drawn, scale)
        and not fits(drawn, 0.85 * scale)
        and not fits(drawn, 1.2 * scale)
    )


def test_records_under_masks_are_counted_one_by_one(ten):
    mechanism = DistributedGaussian(
        Clip(1.0), 0.0, 1, Parties(10, 10), contributions=40, bits=24, rotate=False, unit="record"
    )
    query = Query("records", RecordCount(), 1, mechanism, 10, "record")
    messages, _ = query.client_round(NOWHERE, {}, ten["table"].gather(np.arange(10)), np.arange(10), Rng(1))
    total = query.wire.add(query.wire.zero(), messages.long(), torch.ones(10))
    assert float(query.estimate(total, Rng(1))) == pytest.approx(38, abs=0.01)


@pytest.mark.parametrize("at_once", [2**23, 1])
def test_sums_over_records_are_exact(at_once, monkeypatch):
    """Numbers on the grid of a clip add up without rounding, in pieces or at once."""
    monkeypatch.setattr("fedsynth.federation.query._AT_ONCE", at_once)
    records, least = 300, 1.0 - 2.0**-19
    data = Padded(
        torch.zeros(1, records, 1), torch.zeros(1, records, dtype=torch.int64), torch.ones(1, records) > 0
    )
    query = plain("nearly one", lambda data: torch.full((len(data.mask), 1), least), 1, "record")
    messages, _ = query.client_round(NOWHERE, {}, data, np.arange(1), Rng(1))
    assert messages.dtype == torch.float64 and float(messages) == records * least


def test_a_charge_has_the_cost_to_the_public_beside_that_to_a_participant():
    shared = DistributedGaussian(
        Clip(1.0), 2.0, 3, Parties(4, 3, largest=1), contributions=4, bits=24, rotate=False
    )
    (charge,) = Query("shares", RecordCount(), 3, shared, 4).charges()
    assert charge.public is not None and charge.public == charge.release.public != charge.event


def test_every_client_sends_an_answer_of_its_own():
    assert plain("records", RecordCount(), 1).together is False


def test_long_lists_are_asked_for_many_records_at_once(monkeypatch):
    """However long the list is, not one record after another: its answer holds what these records have alone."""
    monkeypatch.setattr("fedsynth.federation.query._AT_ONCE", 1)
    records = 200
    codes = torch.arange(records, dtype=torch.float32).reshape(1, records, 1) % 50
    data = Padded(codes, torch.zeros(1, records, dtype=torch.int64), torch.ones(1, records) > 0)
    query = plain("values", Holdings((1000,), most=1), 1000, "record")
    messages, _ = query.client_round(NOWHERE, {}, data, np.arange(1), Rng(1))
    assert messages[0, :50].tolist() == pytest.approx([4.0] * 50, rel=1e-5) and not messages[0, 50:].any()
