import numpy as np
import pytest
import torch

from fedsynth.engines.inprocess import InProcess
from fedsynth.errors import BudgetExhausted
from fedsynth.federation.loop import ask
from fedsynth.federation.query import Query
from fedsynth.federation.state import ServerState
from fedsynth.federation.statistics import LabelShares, RecordCount, as_probabilities
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.rng import Rng
from fedsynth.transport.clear import Clear

NOWHERE = ServerState(0, {})


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
    assert (charge.release.what, charge.release.unit, when) == ("records", "record", "")
    assert charge.event == query.mechanism.release.event and len(ids) == 10
    assert float(got) != pytest.approx(38, abs=1e-3)


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
