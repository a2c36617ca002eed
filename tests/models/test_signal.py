"""Signals: read and written without loss, a spectrum that is learned, a loss that nothing makes explode."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import grad

from fedsynth.data.encode import Block
from fedsynth.errors import Incompatible
from fedsynth.models.model import initialise, layouts
from fedsynth.models.signal import (
    DenseSignalVAE,
    SpectralVAE,
    Waveform,
    band_weights,
    cosine_basis,
)
from fedsynth.rng import Rng

POINTS = 32


def wave(bins: int = 1, typical: float = 0.1) -> Waveform:
    width = bins + 1
    return Waveform(
        tuple(Block(f"x{i}", i * width, bins=bins, missing=False, ordered=True) for i in range(POINTS)),
        typical,
    )


MODELS = {
    "dense": DenseSignalVAE(wave(), 2, latent=3, hidden=(8, 4)),
    "spectral": SpectralVAE(wave(), 2, latent=3, bands=6, encoder_hidden=(8,)),
    "spectral with a hidden layer": SpectralVAE(wave(), 0, latent=3, bands=6, hidden=(5,)),
}


def parameters(model):
    shapes = layouts(model)
    return {name: shapes[name].split(flat) for name, flat in initialise(model, Rng(0)).items()}


def batch_of(amplitudes):
    rows = wave().write(amplitudes)
    return {
        "x": rows,
        "y": torch.zeros(len(rows), dtype=torch.int64),
        "weight": torch.ones(len(rows)),
    }


@pytest.mark.parametrize("bins", [1, 7])
def test_a_signal_is_read_as_it_was_written(bins):
    signal = torch.randn(5, POINTS, generator=torch.Generator().manual_seed(0))
    rows = wave(bins).write(signal)
    torch.testing.assert_close(wave(bins).read(rows), signal, rtol=0, atol=1e-4)
    assert torch.equal(rows.reshape(5, POINTS, bins + 1)[..., :bins].sum(-1), torch.ones(5, POINTS))


def test_amplitudes_beyond_the_public_range_are_cut_to_it():
    rows = wave().write(torch.full((1, POINTS), 1e6))
    assert wave().read(rows).max() == pytest.approx(10.0)


def test_columns_that_are_no_signal_are_refused():
    with pytest.raises(Incompatible, match="'sex' is not part of a signal.*decoder=histogram"):
        Waveform((Block("sex", 0, bins=2, missing=False, ordered=False),), 0.1)
    with pytest.raises(Incompatible, match="1 columns are not"):
        Waveform((Block("x", 0, bins=1, missing=False, ordered=True),), 0.1)


@given(st.integers(2, 200), st.integers(2, 40))
@settings(max_examples=30, deadline=None)
def test_bands_share_out_every_frequency(points, bands):
    weights = band_weights(points, bands)
    assert 2 <= len(weights) <= max(2, bands)
    torch.testing.assert_close(weights.sum(0), torch.ones(points))
    assert bool((weights >= 0).all()) and bool((weights.sum(1) > 0).all())


def test_the_basis_is_orthonormal():
    basis = cosine_basis(178)
    torch.testing.assert_close(basis @ basis.T, torch.eye(178), rtol=0, atol=1e-5)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_no_row_makes_the_loss_or_its_gradient_explode(model):
    loud = torch.where(torch.arange(POINTS) % 2 == 0, 1e9, -1e9).expand(2, POINTS)
    batch, noise = batch_of(loud), 3 * torch.ones(2, 3)
    wild = {part: {n: 20 * v for n, v in named.items()} for part, named in parameters(model).items()}
    for params in (parameters(model), wild):
        loss = model.loss("elbo", params, batch, noise)
        assert 0 <= float(loss) < 1e9
        slopes = grad(lambda p, b=batch: model.loss("elbo", p, b, noise))(params)
        assert all(bool(torch.isfinite(v).all()) for named in slopes.values() for v in named.values())


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_rows_that_do_not_count_change_nothing(model):
    batch = batch_of(torch.randn(4, POINTS, generator=torch.Generator().manual_seed(1)))
    noise = torch.zeros(4, 3)
    masked = {**batch, "weight": torch.tensor([1.0, 1.0, 0.0, 0.0])}
    first = {name: value[:2] for name, value in batch.items()}
    params = parameters(model)
    torch.testing.assert_close(
        model.loss("elbo", params, masked, noise), model.loss("elbo", params, first, noise[:2])
    )


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_samples_are_encoded_rows_within_the_range(model):
    rows = model.sample(parameters(model), torch.zeros(50, dtype=torch.int64), Rng(0))
    assert rows.shape == (50, 2 * POINTS)
    assert bool(torch.isfinite(rows).all()) and rows[:, 1::2].min() >= 0 and rows[:, 1::2].max() <= 1
    assert rows[:, 1::2].std() > 0


def test_a_spectral_vae_learns_the_spectrum_of_what_it_sees():
    """Training on signals with a known spectrum makes signals with that spectrum."""
    generator = torch.Generator().manual_seed(0)
    true = torch.exp(torch.linspace(2.0, -2.0, POINTS))
    signals = (torch.randn(400, POINTS, generator=generator) * true) @ cosine_basis(POINTS)
    model = SpectralVAE(wave(typical=0.02), 0, latent=2, bands=8, encoder_hidden=(8,))
    rows = wave(typical=0.02).write(signals)
    batch = {"x": rows, "y": torch.zeros(400, dtype=torch.int64), "weight": torch.ones(400)}
    params = {
        part: {n: v.clone().requires_grad_() for n, v in named.items()}
        for part, named in parameters(model).items()
    }
    leaves = [v for named in params.values() for v in named.values()]
    optimizer = torch.optim.Adam(leaves, 0.03)
    for _ in range(250):
        optimizer.zero_grad()
        model.loss("elbo", params, batch, torch.randn(400, 2, generator=generator)).backward()
        optimizer.step()
    made = wave(typical=0.02).read(model.sample(params, torch.zeros(4000, dtype=torch.int64), Rng(0)))
    found = (made.detach() @ cosine_basis(POINTS).T).std(0)
    ratio = (found / true).log().abs()
    assert ratio.mean() < math.log(1.25) and ratio.max() < math.log(1.8)
