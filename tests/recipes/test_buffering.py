"""Client-level privacy without rounds: noise that cancels over versions, paid by the uses of a client."""

from collections import Counter

import pytest

from fedsynth import Synthesizer, clients_from
from fedsynth.data.schema import Schema
from fedsynth.errors import BudgetExhausted, Incompatible
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.fedbuff import FedBuff
from fedsynth.privacy.banded import BandedGaussian
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.local import LocalGaussian
from fedsynth.privacy.none import NoPrivacy
from fedsynth.recipes.registry import recipe_named
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.request import Request
from samples import TABLE, make_frame

SETTINGS = {"latent": 2, "hidden": (4,), "buffer": 3, "separation": 4, "concurrency": 8, "rounds": 8}
SCHEMA = Schema.from_dict(TABLE)


def composed(*, recipe="dpd_fvae", private=True, trust=None, transport=None, **changes):
    recipe = recipe_named(recipe)
    task = recipe.task(SCHEMA, 20, private=private, trust=trust, transport=transport)
    values = {**SETTINGS, "noise_multiplier": 1.0, "staleness": "auto", **changes}
    return recipe.build(task, recipe.values(values))


@pytest.mark.parametrize("recipe", ["fvae", "dpd_fvae", "dp_fedavg_gan"])
def test_noise_at_the_server_becomes_correlated_and_local_noise_stays(recipe):
    central = composed(recipe=recipe)
    assert isinstance(central.mechanism, BandedGaussian) and central.schedule.staleness == "constant"
    assert (central.mechanism.separation, central.mechanism.participations) == (4, 2)
    local, plain = composed(recipe=recipe, trust="local"), composed(recipe=recipe, private=False)
    assert isinstance(local.mechanism, LocalGaussian) and isinstance(plain.mechanism, NoPrivacy)
    assert local.schedule.staleness == plain.schedule.staleness == "sqrt"
    assert not isinstance(composed(recipe=recipe, buffer=0).schedule, FedBuff)


def test_noise_shared_out_over_a_cohort_is_refused():
    with pytest.raises(Incompatible, match="secagg opens sums of an agreed cohort"):
        composed(trust="distributed", staleness="constant")
    with pytest.raises(Incompatible, match="sampling amplifies nothing"):
        composed(trust="distributed", transport="he-open", staleness="constant")


@pytest.fixture(scope="module")
def owners():
    return clients_from(make_frame([number // 2 for number in range(40)]), client_column="owner")


def fitted(owners, path, **changes):
    asked = {**SETTINGS, "epsilon": 8.0, "delta": 1e-3, **changes}
    return Synthesizer("dpd_fvae", SCHEMA, **asked).fit(owners, folder=path)


def test_a_client_pays_for_its_uses_and_no_more(owners, tmp_path):
    made = fitted(owners, tmp_path / "run")
    lines = [one for one in Ledger(tmp_path / "run" / "ledger.jsonl").lines() if ", round " in one.what]
    uses = Counter(one.holder for one in lines)
    assert len(lines) == 3 * 8 and max(uses.values()) <= 2
    assert made.privacy.private and 7 < made.privacy.epsilon <= 8 and made.privacy.adjacency == "zero-out"
    assert made.privacy.unit == "client" and made.privacy.sampling == "none"


class Stop(Exception):
    """Pulls the plug."""


@pytest.mark.parametrize(
    ("version", "separation", "refused"), [(1, 1, ""), (7, 1, "use left"), (1, 4, "noise")]
)
def test_a_sum_noised_again_after_a_crash_is_paid_again_or_refused(
    version, separation, refused, owners, tmp_path, monkeypatch
):
    """Killed between payment and step: early on its clients have a use to spare, in the end some have none.

    Noise that cancels over rounds would show clients of earlier rounds a second time.
    """
    path, step = tmp_path / "run", Algorithm.server_round

    def killed(algorithm, state, *rest):
        if state.version == version:
            raise Stop
        return step(algorithm, state, *rest)

    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr(Algorithm, "server_round", killed)
        fitted(owners, path, separation=separation)
    again = Synthesizer.of(Request.from_toml(Folder(path).read_recipe()), SCHEMA)
    if refused:
        with pytest.raises(BudgetExhausted, match=f"round {version + 1} was paid for and lost.*{refused}"):
            again.resume(owners, path)
        return
    again.resume(owners, path)
    lines = [one for one in Ledger(path / "ledger.jsonl").lines() if ", round " in one.what]
    assert Counter(one.what.rpartition(" ")[2] for one in lines)["2"] == 6  # each of the three paid twice
    assert max(Counter(one.holder for one in lines).values()) <= 2 and again.privacy.epsilon <= 8
