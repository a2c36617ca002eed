"""fedsynth's own engine on the same models: `--chunk 1` is the same code, one client after another.

python benchmarks/cohort_engine.py --case table-100 --threads 2
"""

from __future__ import annotations

import resource
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from cases import CATEGORIES, CHANNELS, COLUMNS, LATENT, SIDE, Case, made_up
from plain import HIDDEN, WIDTH, Autoencoder, autoencoder
from reporting import arguments, reply
from torch import Tensor

from fedsynth.data.clients import Clients
from fedsynth.data.encode import Block
from fedsynth.federation.algorithm import Algorithm, Home
from fedsynth.federation.loop import Round, run
from fedsynth.federation.schedule import FixedCohort
from fedsynth.federation.server import Momentum
from fedsynth.federation.state import ServerState
from fedsynth.models.model import Model, layouts
from fedsynth.models.vae import ImageVAE, TableVAE
from fedsynth.privacy.none import NoPrivacy
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.training.optimizer import SGD, Adam
from fedsynth.training.plan import Phase
from fedsynth.training.rule import Epochs


def model_of(case: Case) -> Model:
    if case.kind == "image":
        return ImageVAE(CHANNELS, SIDE, case.classes, LATENT, WIDTH)
    blocks = tuple(
        Block(f"column {i}", i * CATEGORIES, CATEGORIES, missing=False, ordered=False) for i in range(COLUMNS)
    )
    return TableVAE(COLUMNS * CATEGORIES, blocks, case.classes, LATENT, (HIDDEN,))


def algorithm_of(case: Case, private_encoder: bool = False) -> Algorithm:
    """Federated averaging without privacy; all parts shared, or each client keeps its encoder and Adam's memory."""
    encoder = Adam(case.learning_rate) if private_encoder else SGD(case.learning_rate)
    optimizers = {"encoder": encoder, "decoder": SGD(case.learning_rate)}
    return Algorithm(
        name=case.name,
        model=model_of(case),
        homes={"encoder": Home.CLIENT if private_encoder else Home.SHARED, "decoder": Home.SHARED},
        plan=(Phase("elbo", optimizers, Epochs(case.epochs, case.batch)),),
        mechanism=NoPrivacy(),
        schedule=FixedCohort(case.clients, case.cohort),
        server=Momentum(0.0, 1.0),
        rounds=1 + case.rounds,
        keep=("encoder",) if private_encoder else (),
    )


def clients_of(case: Case) -> Clients:
    x, y = made_up(case)
    return Clients(x.flatten(0, 1), y.flatten(), np.arange(case.clients + 1) * case.records)


def train(
    algorithm: Algorithm,
    clients: Clients,
    device: str,
    chunk: int,
    rounds: int,
    processor: list[float] | None = None,
) -> tuple[ServerState, list[float]]:
    """The state after so many rounds, and the seconds that each took; the first, which warms up, is left out.

    Seconds of the processor, which other work on the machine lengthens less, go to `processor`.
    """
    rng, seconds, ends = Rng(0), [], [time.process_time()]

    def seen(state: ServerState, finished: Round) -> None:
        if device != "cpu":
            torch.cuda.synchronize()
        seconds.append(finished.seconds)
        ends.append(time.process_time())

    link = InProcess(clients, rng, device=device, chunk=chunk or None)
    state = algorithm.init(rng)
    state = run(algorithm, link, state, rng, lambda *_: None, seen, rounds)
    if processor is not None:
        processor += [after - before for before, after in pairwise(ends[1:])]
    return state, seconds[1:]


def difference_from_plain(case: Case) -> float:
    """How far the loss of the plain torch model is from fedsynth's, relative, with the same parameters and noise."""
    twin, model = autoencoder(case), model_of(case)
    x, y = (value[0] for value in made_up(case, 1))
    noise = torch.randn(len(y), LATENT)
    batch = {"x": x, "y": y, "weight": torch.ones(len(y))}
    with torch.no_grad():
        ours = model.loss("elbo", _parameters(model, twin), batch, noise)
        theirs = twin.loss(x, y, noise)
    return float((ours - theirs).abs() / theirs.abs())


def _parameters(model: Model, twin: Autoencoder) -> dict[str, dict[str, Tensor]]:
    named = dict(twin.named_parameters())
    parts = {part: layout.names for part, layout in layouts(model).items()}
    assert sum(map(len, parts.values())) == len(named), "the plain model has other parameters"
    return {part: {name: named[f"{part}.{name}"] for name in names} for part, names in parts.items()}


def difference_from_one_by_one(case: Case, device: str) -> float:
    """How far one round of the stacked cohort is from the same clients one by one, relative to the change."""
    few = replace(case, clients=case.sample, cohort=case.sample)
    algorithm, clients = algorithm_of(few), clients_of(few)
    before = _flat(algorithm.init(Rng(0)))
    together, alone = (_flat(train(algorithm, clients, device, chunk, 1)[0]) for chunk in (0, 1))
    return float((together - alone).norm() / (alone - before).norm())


def _flat(state: ServerState) -> Tensor:
    return torch.cat([part.flatten().cpu() for part in state.parts.values()])


def main() -> None:
    case, options = arguments()
    if options.clients:  # time and memory against the number of clients, each keeping its encoder
        case = replace(case, clients=options.clients)
    elif options.chunk == 1:
        case = replace(case, cohort=case.sample)
    algorithm, clients = algorithm_of(case, bool(options.clients)), clients_of(case)
    processor: list[float] = []
    _, seconds = train(algorithm, clients, options.device, options.chunk, algorithm.rounds, processor)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    more: dict[str, object] = {"peak_gib": peak, "parameters": algorithm.dim - 1}
    if options.check:
        more["from_plain"] = difference_from_plain(case)
        more["from_one_by_one"] = difference_from_one_by_one(case, options.device)
    reply(seconds, processor, clients=case.cohort, **more)


if __name__ == "__main__":
    main()
