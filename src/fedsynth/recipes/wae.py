"""DP-Fed-WAE (Jiang, Zhou and Grossklags 2022): a Wasserstein autoencoder from one signed index per client.

Each client trains the shared autoencoder on its rows and sends the sign and the index of one coordinate that moved much
(SignDS), which is epsilon-DP for all of its data together against everybody, the server included. A client takes part
at most `participations` times, each time with epsilon / participations; who takes part when is fixed beforehand, so
this holds by construction, and nothing is gained from sampling. No loss is sent: a message has no room for it.

Beyond the paper: an opening question (see recipes/opening.py) to a part of the clients, who then do not train; a label
that weighs more than one column; the smallest `alpha` that keeps messages likely to be from the favored coordinates.
The paper's setting is `--preset paper`, but for the class balance, which one client in fifty is asked for so that rows
of a given class can be drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedsynth.errors import BadInput, BudgetExhausted
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.query import Query
from fedsynth.federation.schedule import Rotation
from fedsynth.federation.server import Momentum
from fedsynth.models.model import Model, total_size
from fedsynth.models.wae import OBJECTIVE, ImageWAE, TableWAE
from fedsynth.privacy.mechanism import Mechanism
from fedsynth.privacy.none import NoPrivacy
from fedsynth.privacy.response import Views, best_view
from fedsynth.privacy.signds import SignDS
from fedsynth.recipes.opening import FillFromViews, FirstRow, Simulate, UniformImages, UniformRows, pretrain
from fedsynth.recipes.settings import Local, checked, setting
from fedsynth.recipes.task import Task
from fedsynth.recipes.vae import ALL_SHARED, BOTH
from fedsynth.training.plan import Phase
from fedsynth.transport.registry import transport_named

_FAVORED = 0.85  # the chance that a message is from the favored coordinates, where alpha is chosen by it
_BALANCE_ALONE = 0.02  # share of clients that are asked where only the class balance is
DECODES = ("drawn", "likeliest")


@dataclass(frozen=True)
@checked
class WassersteinArchitecture:
    """The autoencoder's size and what its loss weighs."""

    latent: int = setting(16, "numbers in the latent code", 1)
    hidden: tuple[int, ...] = setting((64,), "hidden layers of the table networks, from the row inwards", 1)
    width: int = setting(16, "channels of the first convolution, for images", 1)
    penalty: float = setting(1.0, "weight of the discrepancy between codes and prior (lambda)", 0.0)
    label_weight: float = setting(20.0, "how many columns the label counts for in the loss", 0.0)
    decode: str = setting(
        "drawn", "drawn: values by their chance; likeliest: as in the paper", choices=DECODES
    )


@dataclass(frozen=True)
@checked
class Turns:
    """How clients take turns, and what the server does with their signs."""

    rounds: int = setting(0, "rounds of training (0: until every client has had its turns)", 0, role="rounds")
    group: int = setting(100, "clients a round", 1)
    participations: int = setting(1, "the most rounds that a client takes part in (t_r)", 1)
    server_learning_rate: float = setting(1.0, "how far the mean sign moves the model (gamma)", 1e-12)
    momentum: float = setting(0.0, "server momentum", 0.0, 0.9999)


@dataclass(frozen=True)
@checked
class SignPrivacy:
    """Each client's budget, and how it is spent on indices."""

    epsilon: float = setting(0.0, "what a client may spend in all; from --epsilon", 0.0, role="budget")
    alpha: float = setting(
        0.0,
        "share of coordinates that are favored (0: the smallest that keeps 85% of messages among them)",
        0.0,
        1.0,
    )
    top: int = setting(0, "number of coordinates that are favored, instead of alpha (k; 0: use alpha)", 0)
    indices: int = setting(1, "indices that a client sends, drawn together (h)", 1)


@dataclass(frozen=True)
@checked
class WassersteinStart:
    """Where training starts: an opening question to part of the clients, and training on simulated rows."""

    opening: float = setting(
        0.5, "share of clients that are asked for a few columns and do not train (0: none)", 0.0, 0.9
    )
    columns: int = setting(0, "columns asked of each, beside the label (0: as many as tell most)", 0)
    latent_classes: int = setting(8, "classes of the mixture that is fitted to the answers", 1)
    pretraining: int = setting(2000, "steps on simulated rows before training", 0)


def wasserstein(task: Task, architecture: WassersteinArchitecture) -> Model:
    """The autoencoder for the task's kind of data."""
    latent, loss = architecture.latent, (architecture.penalty, architecture.label_weight)
    if not task.blocks:
        return ImageWAE(*task.image, task.classes, latent, architecture.width, *loss)
    rows = task.width, task.blocks, task.classes
    return TableWAE(*rows, latent, architecture.hidden, *loss, architecture.decode)


def smallest_alpha(epsilon: float, chance: float = _FAVORED) -> float:
    """The smallest share of favored coordinates that a message comes from with this chance (Corollary 1).

    >>> round(smallest_alpha(8.0), 4), round(smallest_alpha(1.0), 2)
    (0.0019, 0.68)
    """
    return chance / (math.exp(min(epsilon, 700.0)) * (1 - chance) + chance)


def mechanism_of(task: Task, privacy: SignPrivacy, participations: int, dim: int) -> Mechanism:
    """One signed index per client and round, at its share of the client's budget."""
    if not task.private:
        return NoPrivacy()
    if not privacy.epsilon:
        raise BadInput("epsilon=0: dp_fed_wae needs the budget of a client; give --epsilon, or --no-privacy")
    if privacy.indices >= dim:
        raise BadInput(
            f"indices={privacy.indices}: a client sends fewer indices than the model has numbers ({dim:,}); the paper "
            "sends 1"
        )
    each = privacy.epsilon / participations
    ratio = privacy.alpha or smallest_alpha(each)
    mechanism = SignDS(each, privacy.top or None, None if privacy.top else ratio, privacy.indices)
    mechanism.wire(dim)  # k and h fit the model, or it is refused now
    return mechanism


def opening_of(task: Task, model: Model, start: WassersteinStart, epsilon: float) -> tuple[Query | None, int]:
    """The opening question and the distance between the clients that are asked; None and 0 where nothing is."""
    columns = bool(task.blocks) and start.opening > 0
    unknown = bool(task.classes) and task.schema.label_probabilities is None
    if not columns and not unknown:
        return None, 0
    blocks = task.blocks if columns else ()
    sizes = (*(block.size for block in blocks), *((task.classes,) if task.classes else ()))
    always = (len(sizes) - 1,) if task.classes else ()
    drawn = (start.columns or best_view(sizes, always, epsilon)) if columns else 0
    views = Views(sizes, always, min(drawn, len(blocks)), epsilon)
    share = start.opening if columns else _BALANCE_ALONE
    every = max(2, min(task.clients, round(1 / share)))
    query = Query(
        "randomized answers for a few columns" if columns else "class balance",
        FirstRow(blocks, task.classes),
        len(sizes),
        views,
        task.clients,
        among=Rotation(task.clients, every),
        apart=True,
        learn=FillFromViews(
            model, views, task.width, blocks, task.classes, start.pretraining, start.latent_classes
        ),
    )
    return query, every


def simulated(task: Task) -> Simulate:
    """Uniform data from the schema alone."""
    if task.blocks:
        return UniformRows(task.width, task.blocks, task.classes)
    channels, side = task.image
    return UniformImages((channels, side, side), task.classes)


def turns_of(task: Task, turns: Turns, spared: int) -> tuple[Rotation, int]:
    """The schedule in which nobody takes part more than `participations` times, and its rounds."""
    members = task.clients - (-(-task.clients // spared) if spared else 0)
    groups = max(1, members // turns.group)
    schedule = Rotation(task.clients, groups, spared=spared)
    most = groups * turns.participations
    if task.private and turns.rounds > most:
        raise BudgetExhausted(
            f"rounds={turns.rounds}: {members:,} clients in groups of {turns.group} take part {turns.participations} "
            f"times each in {most} rounds, then the budget of all of them is spent; use smaller groups, more "
            "participations (at less epsilon each), or fewer rounds"
        )
    return schedule, turns.rounds or most


def dp_fed_wae(
    task: Task,
    architecture: WassersteinArchitecture = WassersteinArchitecture(),
    local: Local = Local(),
    turns: Turns = Turns(),
    privacy: SignPrivacy = SignPrivacy(),
    start: WassersteinStart = WassersteinStart(),
) -> Algorithm:
    """DP-Fed-WAE: a Wasserstein autoencoder from one signed index per client, under local DP of pure epsilon."""
    model = wasserstein(task, architecture)
    query, spared = opening_of(task, model, start, privacy.epsilon if task.private else math.inf)
    schedule, rounds = turns_of(task, turns, spared)
    used = schedule.participations(rounds)
    uniform = query is None or not start.opening or not task.blocks
    return Algorithm(
        name="dp_fed_wae",
        model=model,
        homes=ALL_SHARED,
        plan=(
            Phase(
                OBJECTIVE,
                {part: local.build(task.kind) for part in BOTH},
                local.rule,
            ),
        ),
        mechanism=mechanism_of(task, privacy, used, total_size(model, BOTH)),
        schedule=schedule,
        server=Momentum(turns.momentum, turns.server_learning_rate),
        rounds=rounds,
        transport=transport_named(task.transport),
        opening=query,
        loss_share=0.0,
        warm_start=(lambda parts, rng: pretrain(model, parts, simulated(task), start.pretraining, rng))
        if uniform
        else None,
    )
