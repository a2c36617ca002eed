"""The same two models as ordinary torch modules, and the ordinary loop: one client after another. Needs torch alone.

python benchmarks/plain.py --case table-100 --threads 2
"""

from __future__ import annotations

import copy
import time

import torch
import torch.nn.functional as F
from cases import CATEGORIES, CHANNELS, COLUMNS, LATENT, SIDE, Case, made_up
from reporting import arguments, reply
from torch import Tensor, nn

HIDDEN, WIDTH = 64, 16
BOUND = 15.0


class Autoencoder(nn.Module):
    """A conditional VAE; `noise` is drawn unless it is given."""

    classes: int

    def loss(self, x: Tensor, y: Tensor, noise: Tensor | None = None) -> Tensor:
        label = F.one_hot(y, self.classes).float()
        mean, log_variance = self.encode(x, label).chunk(2, dim=-1)
        log_variance = log_variance.clamp(-10.0, 10.0)
        noise = torch.randn_like(mean) if noise is None else noise
        logits = self.decode(mean + noise * torch.exp(0.5 * log_variance), label)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)
        return (self.error(logits, x) + divergence).mean()

    def metrics(self, x: Tensor, y: Tensor) -> dict:
        return {}


class TableAutoencoder(Autoencoder):
    """16k parameters: one choice a column."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        width, self.classes = COLUMNS * CATEGORIES, classes
        self.encoder = nn.Sequential(
            nn.Linear(width + classes, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, 2 * LATENT)
        )
        self.decoder = nn.Sequential(nn.Linear(LATENT + classes, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, width))

    def encode(self, x: Tensor, label: Tensor) -> Tensor:
        return self.encoder(torch.cat([x, label], -1))

    def decode(self, latent: Tensor, label: Tensor) -> Tensor:
        return BOUND * torch.tanh(self.decoder(torch.cat([latent, label], -1)) / BOUND)

    def error(self, logits: Tensor, x: Tensor) -> Tensor:
        normalizer = logits.unflatten(-1, (COLUMNS, CATEGORIES)).logsumexp(-1).sum(-1)
        return normalizer - (x * logits).sum(-1)


class ImageEncoder(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(CHANNELS, WIDTH, 4, stride=2, padding=1)
        self.second = nn.Conv2d(WIDTH, 2 * WIDTH, 4, stride=2, padding=1)
        self.head = nn.Linear(2 * WIDTH * (SIDE // 4) ** 2 + classes, 2 * LATENT)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        features = F.relu(self.second(F.relu(self.first(x))))
        return self.head(torch.cat([features.flatten(1), label], -1))


class ImageDecoder(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Linear(LATENT + classes, 2 * WIDTH * (SIDE // 4) ** 2)
        self.first = nn.ConvTranspose2d(2 * WIDTH, WIDTH, 4, stride=2, padding=1)
        self.second = nn.ConvTranspose2d(WIDTH, CHANNELS, 4, stride=2, padding=1)

    def forward(self, latent: Tensor, label: Tensor) -> Tensor:
        stem = F.relu(self.stem(torch.cat([latent, label], -1)))
        return self.second(F.relu(self.first(stem.unflatten(-1, (2 * WIDTH, SIDE // 4, SIDE // 4)))))


class ImageAutoencoder(Autoencoder):
    """Two strided convolutions down, two transposed ones up."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.encoder, self.decoder = ImageEncoder(classes), ImageDecoder(classes)
        self.encode, self.decode = self.encoder, self.decoder

    def error(self, logits: Tensor, x: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, x, reduction="none").flatten(1).sum(-1)


def autoencoder(case: Case) -> Autoencoder:
    torch.manual_seed(0)
    return {"table": TableAutoencoder, "image": ImageAutoencoder}[case.kind](case.classes)


def update(model: Autoencoder, case: Case, x: Tensor, y: Tensor) -> None:
    """One client's local training, in place."""
    optimizer = torch.optim.SGD(model.parameters(), lr=case.learning_rate)
    for _ in range(case.epochs):
        order = torch.randperm(len(y), device=y.device)
        for rows in order.split(case.batch):
            optimizer.zero_grad()
            model.loss(x[rows], y[rows]).backward()
            optimizer.step()


def one_round(model: Autoencoder, case: Case, x: Tensor, y: Tensor) -> None:
    """Federated averaging over these clients."""
    local = copy.deepcopy(model)
    shared, own = list(model.parameters()), list(local.parameters())
    total = [torch.zeros_like(p) for p in shared]
    for client in range(len(y)):
        with torch.no_grad():
            for mine, theirs in zip(own, shared, strict=True):
                mine.copy_(theirs)
        update(local, case, x[client], y[client])
        with torch.no_grad():
            for sum_, mine, theirs in zip(total, own, shared, strict=True):
                sum_ += mine - theirs
    with torch.no_grad():
        for theirs, sum_ in zip(shared, total, strict=True):
            theirs += sum_ / len(y)


def main() -> None:
    case, options = arguments()
    x, y = (value[: case.sample].to(options.device) for value in made_up(case, case.sample))
    model = autoencoder(case).to(options.device)
    seconds, processor = [], []
    for _ in range(1 + case.rounds):
        began, own = time.perf_counter(), time.process_time()
        one_round(model, case, x, y)
        if options.device != "cpu":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
        processor.append(time.process_time() - own)
    reply(seconds[1:], processor[1:], clients=len(y))


if __name__ == "__main__":
    main()
