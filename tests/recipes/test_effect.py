"""Every setting of every recipe changes what is composed, or is refused with the reason."""

from functools import partial

import pytest
import torch
from test_every_transport import ASKED, CLIENTS, GIVEN, ROWS, expected_to_run

from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.federation.loop import learn_balance
from fedsynth.federation.schedule import Clock
from fedsynth.recipes.effect import fingerprint, has_effect, refuse_without_effect
from fedsynth.recipes.registry import RECIPES, recipe_named
from fedsynth.recipes.task import Task
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from samples import KINDS

SHARES = {"threshold", "colluders", "bits"}
BUFFER = {"concurrency", "turns", "separation", "staleness"}
IMAGES = {"frequencies", "start_from", "levels", "directions", "critic", "painter", "anchor", "width"}
ROWS_ONLY = {"hidden", "latent_classes", "pretraining"}
BATCHES = {"epochs", "batch_size", "most_batches"}
AUTOENCODER = {"table": {"width", "signal"}, "image": {"hidden", "signal"}}
GAN = {"table": IMAGES | {"balance_share"}, "image": ROWS_ONLY | {"latent", "balance_share"}}

UNUSED = {  # by recipe and kind, beside shares of noise without trust=distributed and a buffer that is not asked for
    "marginals": {"table": set()},
    "privbayes": {"table": set()},
    **dict.fromkeys(("calm", "lopub", "locop"), {"table": set()}),
    "histories": {"linked": set()},
    "central_vae": {kind: names | {"most_batches"} for kind, names in AUTOENCODER.items()},
    "fvae": AUTOENCODER,
    "dpd_fvae": AUTOENCODER,
    "fvae_record": {kind: names | BATCHES | {"rate", "cohort"} for kind, names in AUTOENCODER.items()},
    "dpd_fvae_record": {kind: names | BATCHES | {"rate", "cohort"} for kind, names in AUTOENCODER.items()},
    "dpd_fvae_local_published": {
        kind: names | {"rate", "cohort", "noise_multiplier"} for kind, names in AUTOENCODER.items()
    },
    "moment_vae": {"image": set()},
    "mixture": {"image": set()},
    "site_vae": AUTOENCODER,
    "site_gan": GAN,
    "fed_vae": {"table": {"width", "bands", "typical", "pixels"}, "image": {"width", "typical"}},
    "dp_fedavg_gan": GAN,
    "pp_fedgan": {"table": IMAGES | {"layers"}, "image": ROWS_ONLY | {"latent"}},
    "dp_gan": {"table": GAN["table"] | {"layers"}, "image": GAN["image"]},
    "dp_fedavg_lm": {"text": {"balance_share"}},
    "dp_fed_wae": {"table": {"width"}, "image": {"hidden", "decode"}},
}
BY_UNIT = {
    ("marginals", "record"): {"mean_over"},
    ("moment_vae", "client"): {"batch_rate", "usual_records"},
    ("moment_vae", "record"): {"rate", "cohort", *BATCHES},
    ("site_vae", "client"): {"records"},
    ("site_gan", "client"): {"records"},
}
COMPOSED = [
    (name, kind, unit, trust, transport)
    for name, unit, trust, transport in ROWS
    for kind in RECIPES[name].kinds
    if expected_to_run(name, trust, transport)
]


def composition(name, kind, unit, trust, transport):
    recipe = recipe_named(name)
    task = recipe.task(
        Schema.from_dict(KINDS[kind]),
        1 if recipe.pooled else CLIENTS,
        private=recipe.promises,
        unit=unit,
        trust=trust,
        transport=transport,
    )
    known = recipe.arguments()
    given = {key: value for key, value in {**GIVEN, **ASKED}.items() if key in known and key != "rounds"}
    return recipe, task, recipe.values(given)


@pytest.mark.recipe
@pytest.mark.parametrize(("name", "kind", "unit", "trust", "transport"), COMPOSED)
def test_every_setting_changes_the_algorithm_but_those_that_are_known_to_be_refused(
    name, kind, unit, trust, transport
):
    recipe, task, values = composition(name, kind, unit, trust, transport)
    unused = {one for one in recipe.arguments() if not has_effect(recipe, task, values, one)}
    expected = UNUSED[name][kind] ^ BY_UNIT.get((name, unit), set())
    expected |= set() if (unit, trust) == ("record", "distributed") else {"most_records"}
    expected |= (SHARES if trust != "distributed" else set()) | (BUFFER if name != "pp_fedgan" else set())
    assert unused == expected & set(recipe.arguments())


@pytest.mark.parametrize("name", ["dpd_fvae_record", "dpd_fvae_local_published", "central_vae", "fvae"])
def test_what_is_refused_changes_nothing_in_a_round(name, ten):
    """Looked at from the other side: the messages and the model of a round are the same to the bit."""
    unit, trust = recipe_named(name).offers[0]
    recipe, task, values = composition(name, "table", unit, trust, "clear")
    first = round_of(recipe, task, values, ten["table"])
    for setting in UNUSED[name]["table"]:
        kind = recipe.arguments()[setting]
        other = kind.choices[-1] if kind.choices else kind.type(0.5) if kind.type is float else 3
        again = round_of(recipe, task, {**values, setting: other}, ten["table"])
        assert all(map(torch.equal, first, again)), setting


def round_of(recipe, task, values, clients):
    algorithm, rng = recipe.build(task, values), Rng(3)
    clients = clients.pooled() if recipe.pooled else clients
    state = algorithm.init(rng.at("init"))
    state = learn_balance(algorithm, InProcess(clients, rng), state, rng, lambda *_: None)
    ids = algorithm.schedule.start(Clock(0), rng)
    blank = {key: value.expand(len(ids), -1) for key, value in algorithm.blank(state).items()}
    messages, kept = algorithm.client_round(state, blank, clients.gather(ids), ids, rng)
    return [messages, *kept.values(), *state.parts.values()]


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        (
            "dpd_fvae_record",
            {"rate": "0.01"},
            "rate=0.01: dpd_fvae_record does not use it for tables with unit=record",
        ),
        (
            "dpd_fvae_record",
            {"epochs": 3, "most_batches": 2},
            r"epochs=3: .*; most_batches=2: .*; leave it out",
        ),
        ("dpd_fvae_local_published", {"rate": 0.01}, "does not use it for tables with no privacy over clear"),
        ("fvae", {"concurrency": 4}, "concurrency=4: .*where buffered"),
        ("central_vae", {"most_batches": 3}, "most_batches=3"),
    ],
)
def test_a_setting_without_effect_is_refused_with_the_reason(schema, name, changes, words):
    recipe = recipe_named(name)
    task = recipe.task(schema, 1 if recipe.pooled else 10, private=recipe.promises)
    with pytest.raises(BadInput, match=words):
        refuse_without_effect(recipe, task, changes)


def test_settings_with_an_effect_pass_and_so_do_those_of_the_private_run_in_its_baseline(schema):
    recipe = recipe_named("fvae")
    refuse_without_effect(recipe, Task(schema, 10), {"buffer": 2, "concurrency": 4, "learning_rate": 0.1})
    baseline = recipe_named("central_vae").task(schema, 1, private=False)
    refuse_without_effect(recipe_named("central_vae"), baseline, {"clip": 0.3})


def test_a_fingerprint_sees_numbers_inside_functions_and_not_the_weights_of_networks():
    def enclosing(number):
        return lambda: number

    assert fingerprint(enclosing(1)) == fingerprint(enclosing(1)) != fingerprint(enclosing(2))
    assert fingerprint(partial(max, 1)) != fingerprint(partial(max, 2))
    assert fingerprint(torch.nn.Linear(2, 2)) == fingerprint(torch.nn.Linear(2, 2))
    assert fingerprint(torch.nn.Linear(2, 2)) != fingerprint(torch.nn.Linear(2, 3))
