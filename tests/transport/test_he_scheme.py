import numpy as np
import pytest

from fedsynth.errors import BadInput
from fedsynth.transport.he_scheme import Keys, Parameters, add, ciphertext, saved
from he_secret import secret_words

SMALL = Parameters("bfv", 4096, (54, 55), 41)
PAPER = Parameters("ckks", 8192, (60, 40, 60), 40)


@pytest.fixture(scope="module")
def keys():
    return Keys.fresh(SMALL)


def test_a_modulus_below_128_bits_of_security_is_refused():
    with pytest.raises(BadInput, match="110 bits: below 128-bit security"):
        Parameters("bfv", 4096, (55, 55), 40)


def test_sums_open_exactly_whoever_sealed_them(keys):
    values = np.random.default_rng(0).integers(0, 2**30, (3, 4096))
    total = ciphertext(SMALL, keys.seal(values[0]))
    add(SMALL, total, ciphertext(SMALL, keys.shared.seal(values[1])))
    add(SMALL, total, ciphertext(SMALL, keys.seal(values[2])))
    assert (keys.open(ciphertext(SMALL, saved(SMALL, total))) == values.sum(0)).all()


def test_two_seals_of_the_same_numbers_differ(keys):
    values = np.zeros(4096, dtype=np.int64)
    assert keys.seal(values) != keys.seal(values)


def test_sealing_with_the_secret_key_halves_the_bytes(keys):
    values = np.arange(4096)
    assert len(keys.seal(values)) < 0.52 * len(keys.shared.seal(values))


@pytest.mark.parametrize("secret", [True, False])
def test_noise_of_fresh_ciphertexts_keeps_the_stated_bound(keys, secret):
    sealer = keys if secret else keys.shared
    sealed = [ciphertext(SMALL, sealer.seal(np.full(4096, 2**40))) for _ in range(20)]
    # SEAL's budget is log2 of (modulus / 2) over (noise times plain modulus), rounded down
    budgets = [keys._decryptor.invariant_noise_budget(one) for one in sealed]
    assert all(SMALL.noise(secret) >= 2.0 ** (54 - 41 - 2 - budget) for budget in budgets)


def test_the_noise_bound_would_notice_sealing_with_the_public_key(keys):
    sealed = ciphertext(SMALL, keys.shared.seal(np.full(4096, 2**40)))
    noise = 2.0 ** (54 - 41 - 2 - keys._decryptor.invariant_noise_budget(sealed))
    assert noise > SMALL.noise(secret=True) / 2


def test_without_the_secret_half_nothing_opens(keys):
    sealed = ciphertext(SMALL, keys.seal(np.arange(4096)))
    with pytest.raises(BadInput, match="has no secret half here"):
        keys.shared.open(sealed)


def test_the_public_half_holds_no_secret_and_has_the_same_name(keys):
    assert keys.shared.secret is None
    assert keys.shared.fingerprint == keys.fingerprint
    assert Keys.fresh(SMALL).fingerprint != keys.fingerprint


def test_another_key_opens_noise(keys):
    values = np.arange(4096)
    opened = Keys.fresh(SMALL).open(ciphertext(SMALL, keys.seal(values)))
    assert (opened == values).mean() < 0.01


def test_keys_do_not_show_themselves(keys):
    assert "secret" not in repr(keys) and "public" not in repr(keys)


def test_the_secret_words_are_the_key_in_use(keys):
    words = secret_words(keys)
    assert len(words) == 8 * 2 * 4096
    assert len({words[at : at + 8] for at in range(0, len(words), 8)}) > 8000


def test_damaged_bytes_are_refused_with_a_reason(keys):
    sealed = keys.seal(np.arange(4096))
    rng = np.random.default_rng(1)
    for _ in range(60):
        broken = bytearray(sealed)
        broken[rng.integers(16)] ^= 1 << int(rng.integers(8))
        cut = bytes(broken)[: rng.integers(len(broken))]
        with pytest.raises(BadInput, match="ciphertext"):
            ciphertext(SMALL, cut)


def test_changed_bytes_are_refused_or_stay_a_ciphertext_of_these_parameters(keys):
    sealed, rng = keys.shared.seal(np.arange(4096)), np.random.default_rng(3)
    refused = 0
    for _ in range(80):
        broken = bytearray(sealed)
        broken[rng.integers(99)] ^= 1 << int(
            rng.integers(8)
        )  # before the coefficients: parameters, form, sizes
        try:
            assert ciphertext(SMALL, bytes(broken)).size() == 2
        except BadInput:
            refused += 1
    assert refused > 40


@pytest.mark.parametrize(("modulus", "plain", "clients"), [((54, 55), 41, 190), ((34, 34, 41), 52, 1000)])
def test_a_sum_without_its_lowest_bits_opens_exactly_and_is_added_to_nothing(modulus, plain, clients):
    chosen = Parameters("bfv", 4096, modulus, plain)
    held, values = Keys.fresh(chosen), np.full(4096, (2**plain - 2 ** (plain - 6)) // clients)
    total = ciphertext(chosen, held.seal(values))
    for _ in range(clients - 1):
        add(chosen, total, ciphertext(chosen, held.seal(values)))
    dropped = chosen.droppable(clients, secret=True)
    assert dropped >= 3
    short = saved(chosen, total, dropped)
    assert len(short) == chosen.sealed_bytes(False, dropped) < len(saved(chosen, total))
    assert (held.open(ciphertext(chosen, short, final=True)) == clients * values).all()
    with pytest.raises(BadInput, match="cannot be added"):
        ciphertext(chosen, short)


def test_a_ciphertext_of_other_parameters_is_refused(keys):
    other = Parameters("bfv", 4096, (54, 55), 40)
    with pytest.raises(BadInput, match="no ciphertext of"):
        ciphertext(other, keys.seal(np.arange(4096)))


def test_a_public_key_is_no_secret_key(keys):
    wrong = Keys(SMALL, keys.public, keys.public)
    with pytest.raises(BadInput, match="cannot be read"):
        wrong.open(ciphertext(SMALL, keys.seal(np.arange(4096))))


def test_parameters_survive_their_text():
    assert Parameters.from_text(PAPER.to_text()) == PAPER
    with pytest.raises(BadInput, match="cannot be read"):
        Parameters.from_text('{"scheme": "bfv"}')


def test_approximate_sums_stay_within_the_stated_error():
    keys = Keys.fresh(PAPER)
    values = np.random.default_rng(2).normal(size=(3, PAPER.slots))
    total = ciphertext(PAPER, keys.seal(values[0]))
    for one in values[1:]:
        add(PAPER, total, ciphertext(PAPER, keys.seal(one)))
    worst = np.abs(keys.open(total) - values.sum(0)).max()
    assert 0 < worst < 3 * PAPER.error(secret=True)
