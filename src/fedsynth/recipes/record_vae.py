"""Autoencoders whose clients each run DP-SGD on their own records: two sound ways, and the published one that is not.

Every client protects its records against everybody, the server included, and pays in its own ledger for every step of
every round; the statement shows the client that paid most. All clients take part in each round, because leaving
some out amplifies nothing against a server that knows whom it asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedsynth.errors import NotPrivate
from fedsynth.federation.algorithm import Algorithm, Home
from fedsynth.federation.query import Query
from fedsynth.federation.schedule import Everyone
from fedsynth.federation.statistics import LabelShares
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.local import LocalRecords
from fedsynth.privacy.none import NoPrivacy
from fedsynth.recipes.settings import Architecture, Local, Rounds, checked, noise_setting, setting
from fedsynth.recipes.task import Task
from fedsynth.recipes.vae import ALL_SHARED, DECODER_SHARED, autoencoder
from fedsynth.training.plan import Phase
from fedsynth.training.rule import DPSGD, Rule
from fedsynth.transport.registry import transport_named

NO_GUARANTEE = (
    "There is no record-level guarantee: the encoder is trained on the same records without noise and shapes every "
    "gradient of the decoder, so one record can move the noisy sum by far more than its clip (PRIVACY.md, rule 5)."
)
_USUAL_ROUNDS = Rounds(rounds=40, momentum=0.5)


@dataclass(frozen=True)
@checked
class LocalRecordPrivacy:
    """DP-SGD at each client; the noise is over the clip, whatever the usual number of records."""

    noise_multiplier: float = noise_setting()
    clip: float = setting(1.0, "largest L2 norm of a record's gradient", 1e-12, role="clip")
    report: float = setting(0.1, "share of the clip that carries the training loss", 0.001, 0.7)
    batch_rate: float = setting(0.25, "chance of each record to be in a step's batch", 1e-6, 1.0)
    steps: int = setting(1, "steps of a client in a round", 1)
    usual_records: int = setting(
        100, "about how many records a client has; scales a step", 1, role="records_each"
    )

    def rule(self, loss_bound: float, claimed: bool = True) -> DPSGD:
        """DP-SGD with local noise."""
        return DPSGD(
            self.clip,
            self.noise_multiplier,
            self.batch_rate,
            self.steps,
            expected_batch=self.batch_rate * self.usual_records,
            trust="local",
            loss_bound=loss_bound,
            report=self.report,
            claimed=claimed,
        )


@dataclass(frozen=True)
@checked
class PublishedNoise:
    """The noise of Algorithm 2, which protects the decoder's gradients and not the records."""

    decoder_noise: float = setting(1.2, "noise over clip in the decoder's steps; it bounds nothing", 0.0)
    clip: float = setting(0.1, "largest L2 norm of a record's gradient of the decoder", 1e-12, role="clip")
    report: float = setting(0.1, "share of the clip that carries the training loss", 0.001, 0.7)
    batch_rate: float = setting(0.25, "chance of each record to be in a step's batch", 1e-6, 1.0)
    steps: int = setting(1, "steps of the decoder in a round", 1)
    usual_records: int = setting(
        100, "about how many records a client has; scales a step", 1, role="records_each"
    )
    noise_multiplier: float = setting(
        0.0, "not used: no noise gives this recipe a guarantee", 0.0, role="noise"
    )

    @property
    def unclaimed(self) -> LocalRecordPrivacy:
        """The same numbers, for the rule that draws the noise."""
        return LocalRecordPrivacy(
            self.decoder_noise, self.clip, self.report, self.batch_rate, self.steps, self.usual_records
        )


def local_balance(task: Task, privacy: LocalRecordPrivacy, rounds: int) -> Query | None:
    """The class balance at about a thirtieth of the budget, noised at each client; None where it is public."""
    if not task.classes or task.schema.label_probabilities is not None:
        return None
    statistic = LabelShares(task.classes)
    if not task.private:
        return Query("class balance", statistic, task.classes, NoPrivacy(), task.clients, "record")
    together = privacy.noise_multiplier / (privacy.batch_rate * (privacy.steps * rounds) ** 0.5)
    mechanism = LocalRecords(Clip(1.0), max(0.3, 5.5 * together))
    return Query("class balance", statistic, task.classes, mechanism, task.clients, "record")


def _record_level(
    name: str,
    task: Task,
    homes: Mapping[str, Home],
    architecture: Architecture,
    local: Local,
    rounds: Rounds,
    privacy: LocalRecordPrivacy,
) -> Algorithm:
    """DP-SGD over encoder and decoder together; the homes of the parts tell the systems apart."""
    model = autoencoder(task, architecture)
    rule: Rule = privacy.rule(model.objectives["elbo"].bound) if task.private else local.rule
    optimizers = {part: local.build(task.kind) for part in homes}
    return Algorithm(
        name=name,
        model=model,
        homes=homes,
        plan=(Phase("elbo", optimizers, rule),),
        mechanism=NoPrivacy(),
        schedule=Everyone(task.clients),
        server=rounds.build(),
        rounds=rounds.rounds,
        transport=transport_named(task.transport),
        keep=tuple(part for part, home in homes.items() if home is Home.CLIENT),
        opening=local_balance(task, privacy, rounds.rounds),
    )


def fvae_record(
    task: Task,
    architecture: Architecture = Architecture(),
    local: Local = Local(),
    rounds: Rounds = _USUAL_ROUNDS,
    privacy: LocalRecordPrivacy = LocalRecordPrivacy(),
) -> Algorithm:
    """Federated VAE with DP-SGD at each client over encoder and decoder, both averaged."""
    return _record_level("fvae_record", task, ALL_SHARED, architecture, local, rounds, privacy)


def dpd_fvae_record(
    task: Task,
    architecture: Architecture = Architecture(),
    local: Local = Local(),
    rounds: Rounds = _USUAL_ROUNDS,
    privacy: LocalRecordPrivacy = LocalRecordPrivacy(),
) -> Algorithm:
    """DPD-fVAE made sound for records: the encoder stays with its client and is trained by DP-SGD as well."""
    return _record_level("dpd_fvae_record", task, DECODER_SHARED, architecture, local, rounds, privacy)


def dpd_fvae_local_published(
    task: Task,
    architecture: Architecture = Architecture(),
    local: Local = Local(),
    rounds: Rounds = _USUAL_ROUNDS,
    noise: PublishedNoise = PublishedNoise(),
) -> Algorithm:
    """L-DPD-fVAE as published (Pfitzner and Arnrich 2022, Algorithm 2), which has no record-level guarantee.

    The decoder is trained by DP-SGD, the encoder on the same records without noise: in each round a pass of the
    encoder, then the decoder's steps (the paper alternates by batch). It runs without a claim only.
    """
    if task.private:
        raise NotPrivate(
            "dpd_fvae_local_published has no record-level guarantee, so no epsilon can be promised: run it with "
            "--no-privacy and --set decoder_noise=Z, or use dpd_fvae_record or moment_vae with --unit record"
        )
    model = autoencoder(task, architecture)
    noisy = noise.unclaimed.rule(model.objectives["elbo"].bound, claimed=False)
    return Algorithm(
        name="dpd_fvae_local_published",
        model=model,
        homes=DECODER_SHARED,
        plan=(
            Phase("elbo", {"encoder": local.build(task.kind)}, local.rule),
            Phase("elbo", {"decoder": local.build(task.kind)}, noisy),
        ),
        mechanism=NoPrivacy(),
        schedule=Everyone(task.clients),
        server=rounds.build(),
        rounds=rounds.rounds,
        transport=transport_named(task.transport),
        keep=("encoder",),
        opening=local_balance(task, noise.unclaimed, rounds.rounds),
        caveats=(NO_GUARANTEE,),
    )
