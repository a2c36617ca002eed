"""The arguments of recipes, in groups that recipes share: what can be set, its default, and what it is for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar

from fedsynth.errors import BadInput, nearest
from fedsynth.federation.server import Momentum, ServerAdam, ServerRule
from fedsynth.models.signal import SIGNAL_DECODERS
from fedsynth.training.optimizer import SGD, Adam, Optimizer
from fedsynth.training.rule import DPSGD, Epochs

_Group = TypeVar("_Group")
Role = Literal["rounds", "noise", "budget", "rate", "cohort", "clip", "records", "records_each", "clients"]


def setting(
    default: Any,
    meaning: str,
    least: float | None = None,
    most: float | None = None,
    *,
    choices: tuple[str, ...] = (),
    role: Role | None = None,
) -> Any:
    """A field with its meaning, shown by `fedsynth recipes NAME`, and the range or the words it must lie in.

    By its `role` the rest of fedsynth knows what a setting is for, whatever its name: `noise` is calibrated from
    epsilon, a `budget` is epsilon itself, `rounds` follow from both; `records` is a public number that can be paid
    for, `records_each` that of a usual client; `cohort` and `clients` need so many clients to be there.
    """
    metadata = {"help": meaning, "least": least, "most": most, "choices": choices, "role": role}
    return field(default=default, metadata=metadata)


def check_ranges(group: Any) -> None:
    """Refuse the first value outside its range or its words."""
    for item in fields(group):
        value, limits = getattr(group, item.name), item.metadata
        for one in value if isinstance(value, tuple) else (value,):
            if limits["choices"] and one not in limits["choices"]:
                raise BadInput(f"{item.name}={one!r}: unknown; {nearest(one, limits['choices'])}")
            if one is None or isinstance(one, str):
                continue
            least, most = limits["least"], limits["most"]
            if (least is not None and one < least) or (most is not None and one > most):
                span = f"at least {least:g}" if most is None else f"between {least:g} and {most:g}"
                raise BadInput(f"{item.name}={one}: expected {span} ({limits['help']})")


def checked(group: type[_Group]) -> type[_Group]:
    """Make a dataclass of settings, which is to be decorated next, refuse values out of range."""
    group.__post_init__ = check_ranges  # type: ignore[attr-defined]
    return group


OPTIMIZERS: dict[str, Callable[[float], Optimizer]] = {"adam": Adam, "sgd": SGD}


@dataclass(frozen=True)
@checked
class Architecture:
    """The autoencoder's size and the weight of its prior."""

    latent: int = setting(16, "numbers in the latent code", 1)
    hidden: tuple[int, ...] = setting((64,), "hidden layers of the table networks, from the row inwards", 1)
    width: int = setting(16, "channels of the first convolution, for images", 1)
    beta: float = setting(
        0.5,
        "weight of the KL term beside the sum over pixels or columns; for 16 latent numbers and 784 pixels 0.5 is 0.01 "
        "in the normalized form",
        0.0,
    )
    signal: str = setting(
        "spectral",
        "spectral or dense: for tables whose columns all have bins=1, a signal",
        choices=tuple(SIGNAL_DECODERS),
    )
    size: str = setting(
        "free",
        "small (about 185,000 variables) or large (3.85 million): DPD-fVAE's image networks; free: by latent and width",
        choices=("free", "small", "large"),
    )


@dataclass(frozen=True)
@checked
class Local:
    """The settings of a client's training in a round."""

    epochs: int = setting(1, "passes over the client's rows in a round", 1)
    batch_size: int = setting(32, "rows in a batch", 1)
    learning_rate: float = setting(
        0.0, "step size at the client (0: 0.1 for tables, 0.01 for images, 0.001 for images by adam)", 0.0
    )
    optimizer: str = setting(
        "sgd", "adam, sgd, or auto: adam for images and sgd for tables", choices=(*OPTIMIZERS, "auto")
    )
    most_batches: int = setting(
        0, "at most so many batches a pass, for clients with very many rows (0: all)", 0
    )

    @property
    def rule(self) -> Epochs:
        """Plain gradients over the client's rows."""
        return Epochs(self.epochs, self.batch_size, self.most_batches)

    def build(self, kind: str) -> Optimizer:
        """The client's optimizer; an image's loss sums over far more terms than a row's."""
        images = kind == "image"
        chosen = self.optimizer if self.optimizer != "auto" else "adam" if images else "sgd"
        usual = (0.001 if chosen == "adam" else 0.01) if images else 0.1
        return OPTIMIZERS[chosen](self.learning_rate or usual)


@dataclass(frozen=True)
@checked
class PrivateEncoder:
    """How a client trains the encoder that it never shares."""

    encoder_learning_rate: float = setting(
        0.0, "step size of the private encoder (0: 0.03 for tables, 0.003 for images)", 0.0
    )
    encoder_optimizer: str = setting("adam", "adam or sgd", choices=tuple(OPTIMIZERS))

    def build(self, kind: str) -> Optimizer:
        """The encoder's optimizer."""
        usual = {"image": 0.003}.get(kind, 0.03)
        return OPTIMIZERS[self.encoder_optimizer](self.encoder_learning_rate or usual)


@dataclass(frozen=True)
@checked
class Rounds:
    """How often the server asks, whom, and what it does with the answer."""

    rounds: int = setting(150, "rounds of training", 1, role="rounds")
    rate: float = setting(0.2, "chance of each client to take part in a round", 1e-9, 1.0, role="rate")
    cohort: int = setting(
        0, "a fixed number of clients a round instead of a rate (0: use the rate)", 0, role="cohort"
    )
    momentum: float = setting(0.9, "server momentum", 0.0, 0.9999)
    server_learning_rate: float = setting(1.0, "server step size", 1e-12)
    server: str = setting(
        "momentum",
        "momentum or adam: what the server does with the mean update",
        choices=("momentum", "adam"),
    )

    def build(self) -> ServerRule:
        """The server's rule."""
        if self.server == "adam":
            return ServerAdam(self.server_learning_rate, self.momentum)
        return Momentum(self.momentum, self.server_learning_rate)


@dataclass(frozen=True)
@checked
class Passes:
    """How long pooled data are trained on."""

    rounds: int = setting(
        20, "rounds of `epochs` passes each; progress is saved after each round", 1, role="rounds"
    )


def noise_setting() -> Any:
    """Declare the noise that a budget is turned into."""
    return setting(0.0, "noise over clip; calibrated from --epsilon", 0.0, role="noise")


def balance_setting() -> Any:
    """Declare what is spent on the class balance."""
    return setting(0.03, "share of the budget for the class balance, if it is not public", 1e-6, 0.5)


@dataclass(frozen=True)
@checked
class ClientPrivacy:
    """Client-level protection: the clip is the most that one client can move the sum."""

    noise_multiplier: float = noise_setting()
    clip: float = setting(0.4, "largest L2 norm of a client's update", 1e-12, role="clip")
    balance_share: float = balance_setting()
    report: float = setting(
        0.1, "share of the clip that carries the training loss, so that it is private too", 0.001, 0.7
    )


@dataclass(frozen=True)
@checked
class RecordPrivacy:
    """Record-level protection by DP-SGD over all trained parts."""

    noise_multiplier: float = noise_setting()
    clip: float = setting(1.0, "largest L2 norm of a record's gradient", 1e-12, role="clip")
    balance_share: float = balance_setting()
    report: float = setting(0.1, "share of the clip that carries the training loss", 0.001, 0.7)
    records: int = setting(0, "the public number of records (0: pay for a noisy count)", 0, role="records")

    def rule(self, rate: float, steps: int, records: int, loss_bound: float) -> DPSGD:
        """DP-SGD over pooled records, each in a batch with chance `rate`; who pooled them adds the noise."""
        return DPSGD(
            self.clip,
            self.noise_multiplier,
            rate,
            steps,
            expected_batch=rate * records,
            trust="central",
            loss_bound=loss_bound,
            report=self.report,
        )
