"""The recipe: federated averaging of the model under client-level privacy, at a trusted server or at each client."""

from __future__ import annotations

from dataclasses import dataclass

from fedsynth.extend import (
    SGD,
    Algorithm,
    ClientPrivacy,
    Epochs,
    Home,
    Phase,
    Recipe,
    Rounds,
    Task,
    checked,
    client_balance,
    client_mechanism,
    schedule_of,
    setting,
    total_size,
    transport_named,
)
from fedsynth_bernoulli.model import Columns


@dataclass(frozen=True)
@checked
class Steps:
    """What a client does in a round."""

    passes: int = setting(1, "passes over the client's rows in a round", 1)
    step: float = setting(0.5, "step size at the client", 1e-6)


def bernoulli(
    task: Task,
    steps: Steps = Steps(),
    rounds: Rounds = Rounds(rounds=40, momentum=0.5),
    privacy: ClientPrivacy = ClientPrivacy(),
) -> Algorithm:
    """Each column on its own, given the label, by federated averaging under client-level DP."""
    model = Columns(task.width, task.blocks, task.classes)
    schedule = schedule_of(task, rounds)
    return Algorithm(
        name="bernoulli",
        model=model,
        homes={"chances": Home.SHARED},
        plan=(Phase("likelihood", {"chances": SGD(steps.step)}, Epochs(steps.passes, 32)),),
        mechanism=client_mechanism(task, privacy, total_size(model, ["chances"])),
        schedule=schedule,
        server=rounds.build(),
        rounds=rounds.rounds,
        transport=transport_named(task.transport),
        opening=client_balance(task, privacy, schedule, rounds.rounds),
        loss_share=privacy.report * privacy.clip,
    )


RECIPE = Recipe("bernoulli", bernoulli, offers=(("client", "central"), ("client", "local")), kinds=("table",))
