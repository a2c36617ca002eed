"""Apple's pfl-research (PyPI pfl, PyTorch backend) on the same models; runs in its own environment, without fedsynth.

.venv-pfl/bin/python benchmarks/apple_pfl.py --case table-100 --threads 2
"""

from __future__ import annotations

import time
from dataclasses import replace

import torch
from cases import Case, made_up
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from plain import autoencoder
from reporting import arguments, reply


class Stopwatch(TrainingProcessCallback):
    """Times each central iteration."""

    def __init__(self) -> None:
        self.marks: list[tuple[float, float]] = []  # of the clock and of the processor

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.marks.append((time.perf_counter(), time.process_time()))
        return False, Metrics()

    def rounds(self, of: int) -> list[float]:
        """Seconds of the clock (0) or of the processor (1); the first iteration evaluates every client: left out."""
        return [after[of] - before[of] for before, after in zip(self.marks, self.marks[1:], strict=False)]


def federated(case: Case) -> FederatedDataset:
    """Clients whose tensors lie ready in memory: the quickest that pfl offers."""
    x, y = made_up(case)
    users = [PyTorchTensorDataset((x[user], y[user]), user_id=str(user)) for user in range(len(y))]
    return FederatedDataset(users.__getitem__, get_user_sampler("minimize_reuse", list(range(len(users)))))


def main() -> None:
    case, _ = arguments()
    if case.kind == "image":  # a whole cohort takes long and tells no more
        case = replace(case, cohort=2 * case.sample, clients=2 * case.sample)
    module = autoencoder(case)
    model = PyTorchModel(
        module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    )
    data, watch = federated(case), Stopwatch()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=1 + case.rounds,
            evaluation_frequency=10**9,
            train_cohort_size=case.cohort,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=data, val_data=data),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=case.epochs,
            local_learning_rate=case.learning_rate,
            local_batch_size=case.batch,
        ),
        callbacks=[watch],
        send_metrics_to_platform=False,
    )
    reply(watch.rounds(0), watch.rounds(1), clients=case.cohort)


if __name__ == "__main__":
    main()
