import numpy as np
import pytest
from bars import CLIENTS, ROWS, SCHEMA, bars, brighter_side
from hypothesis import given
from hypothesis import strategies as st

from fedsynth.data.clients import RawClients, encode_clients
from fedsynth.errors import BadInput
from fedsynth.inspection.criterion import criterion_named
from fedsynth.inspection.primary import Installed
from fedsynth.inspection.selection import Marks, Selection, Share, ShareBound, mark, select

CORRECT = criterion_named("correct", {})
marks_lists = st.lists(st.booleans(), max_size=12).map(lambda held: np.array(held, dtype=bool))


@given(marks_lists, st.integers(1, 12))
def test_by_example_takes_just_the_marked_rows_or_none(marks, fewest):
    chosen = Selection(CORRECT, "example", at_least=fewest).chosen(marks)
    assert chosen.tolist() == (marks.tolist() if marks.sum() >= fewest else [False] * len(marks))


@given(marks_lists, st.floats(0, 1))
def test_by_user_takes_all_rows_or_none_and_every_client_is_on_a_side(marks, bound):
    low = Selection(CORRECT, below=ShareBound(bound)).chosen(marks)
    high = Selection(CORRECT, above=ShareBound(bound)).chosen(marks)
    for chosen in (low, high):
        assert chosen.all() or not chosen.any()
    if len(marks):
        assert low.all() or high.all()


@pytest.mark.parametrize("given", ["much", "120%", -0.1, 1.01, True, None, "x%"])
def test_a_bound_outside_its_range_is_refused(given):
    with pytest.raises(BadInput, match=r"expected a share between 0 and 1"):
        ShareBound.parse("below", given)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"by": "users", "criterion": "correct", "below": 0.5}, "did you mean 'user'"),
        ({"by": "user", "criterion": "correct"}, "needs a bound"),
        ({"by": "example", "criterion": "correct", "below": 0.5}, "bounds on a client"),
        ({"by": "example", "criterion": "correct", "at_least": 0}, "at_least=0"),
        ({"by": "example", "criterion": "correct", "at_least": "many"}, "at_least='many'"),
        ({"criterion": 3}, "expected a name"),
    ],
)
def test_a_selection_that_means_nothing_is_refused(keys, told):
    with pytest.raises(BadInput, match=told):
        Selection.parse(keys)


def test_as_many_clients_as_before_whoever_is_selected():
    raw = bars(0.5)
    encoded = encode_clients(raw, SCHEMA)
    marks = mark(raw, CORRECT, SCHEMA, Installed(brighter_side, SCHEMA))
    for selection, sizes in (
        (Selection(CORRECT, below=ShareBound(0.5)), [ROWS] * 30 + [0] * 30),
        (Selection(CORRECT, above=ShareBound(0.5)), [0] * 30 + [ROWS] * 30),
        (Selection(CORRECT, "example", at_least=ROWS + 1), [0] * CLIENTS),
    ):
        assert select(raw, encoded, selection, marks).sizes.tolist() == sizes


def test_selected_rows_are_the_clients_own_whatever_their_order():
    raw = bars(0.0)
    order = np.random.default_rng(0).permutation(raw.rows)
    mixed = RawClients(raw.owner[order], raw.count, (), data=(raw.data[0][order], raw.data[1][order]))
    marks = Marks(mixed.data[0][:, 0, 5] == 220, np.zeros(CLIENTS, dtype=bool))
    clients = select(mixed, encode_clients(mixed, SCHEMA), Selection(CORRECT, "example"), marks)
    for client in (0, 7, 59):
        start, stop = clients.offsets[client : client + 2]
        own = mixed.data[0][(mixed.owner == client) & marks.rows]
        assert np.array_equal(clients.x[start:stop, 0].numpy(), own)


def test_a_client_at_which_the_model_fails_sits_out_and_the_others_do_not():
    raw = bars(0.0)

    def moody(images):
        if (images[0] == raw.data[0][8 * 3]).all():
            raise RuntimeError("no")
        return brighter_side(images)

    found = mark(raw, CORRECT, SCHEMA, Installed(moody, SCHEMA))
    assert np.flatnonzero(found.failed).tolist() == [3]
    clients = select(raw, encode_clients(raw, SCHEMA), Selection(CORRECT, above=ShareBound(0.0)), found)
    assert clients.sizes.tolist() == [ROWS] * 3 + [0] + [ROWS] * 56


@pytest.mark.parametrize("answer", [lambda x: np.zeros((len(x), 3)), lambda x: np.zeros(2), lambda x: "yes"])
def test_an_answer_of_the_wrong_shape_is_a_failure(answer):
    assert mark(bars(0.0), CORRECT, SCHEMA, Installed(answer, SCHEMA)).failed.all()


def test_a_selection_that_needs_a_model_says_so():
    with pytest.raises(BadInput, match=r"name one under \[model\]"):
        mark(bars(0.0), CORRECT, SCHEMA, None)


def test_a_share_that_noise_explains_is_nobodys():
    assert Share(0.02, 0.01).nobody and not Share(0.2, 0.01).nobody
    assert Share(-0.3, 0.2).guess > 0 and Share(1.4, 0.2).guess == 1
