from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file

from fedsynth import Schema, Synthesizer, clients_from, image_clients_from
from fedsynth.errors import BadInput

SMALL = {"hidden": (8,), "latent": 2, "batch_size": 8}


@pytest.fixture(scope="module")
def made(schema, frame, tmp_path_factory):
    """As in the Python block of the interface: a schema file, an owner's column, no seed."""
    path = tmp_path_factory.mktemp("run") / "schema.json"
    schema.save(path)
    synthesizer = Synthesizer("dpd_fvae", Schema.load(path), epsilon=8, delta=1e-3, rounds=3, **SMALL)
    return synthesizer.fit(clients_from(frame, client_column="owner"))


@pytest.fixture(scope="module")
def saved(made, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "RUN"
    made.save(path)
    return path


def test_samples_have_the_schemas_columns_within_their_bounds(made):
    rows = made.sample(500)
    assert list(rows.columns) == ["age", "bmi", "sex", "grade", "ill"] and len(rows) == 500
    assert rows["age"].between(0, 99).all() and rows["bmi"].dropna().between(10, 60).all()
    assert set(rows["sex"]) <= {"F", "M"} and set(rows["grade"]) <= {"low", "middle", "high"}


def test_the_statement_of_a_run_without_a_seed_is_a_claim(made):
    privacy = made.privacy
    assert privacy.private and not privacy.simulation
    assert 7.92 < privacy.epsilon <= 8 and privacy.delta == 1e-3
    assert (privacy.unit, privacy.trust, privacy.sampling, privacy.adjacency) == (
        "client", "central", "poisson", "add-remove",
    )  # fmt: skip
    assert str(privacy) == privacy.text
    kinds = [release["what"] for release in privacy.releases]
    assert (
        any("balance" in kind for kind in kinds)
        and sum(release["count"] for release in privacy.releases) == 4
    )


def test_the_statement_says_that_the_noise_is_the_operating_systems(made):
    assert "operating system" in made.privacy.text


def test_the_statement_says_where_clients_are_simulated(schema, frame, made):
    assert "simulated" not in made.privacy.text
    rows = frame.drop(columns="owner")
    for split, said in (("uniform", False), ("label", True)):
        raw = clients_from(rows, clients=100, split=split, label="ill")
        fitted = Synthesizer("dpd_fvae", schema, epsilon=8, delta=1e-3, rounds=1, **SMALL).fit(raw)
        assert f"The clients are simulated: rows without owners were dealt out to them ({split})" in str(
            fitted.privacy
        )
        assert ("depends on what is in the rows (label)" in str(fitted.privacy)) == said


def test_the_statement_of_a_seeded_run_is_none(schema, frame):
    seeded = Synthesizer("dpd_fvae", schema, epsilon=8, delta=1e-3, rounds=1, seed=1, **SMALL)
    privacy = seeded.fit(clients_from(frame, client_column="owner")).privacy
    assert not privacy.private and privacy.simulation and privacy.epsilon is None


def test_the_statement_of_a_run_without_noise_claims_nothing(schema, frame):
    plain = Synthesizer("fvae", schema, private=False, rounds=1, **SMALL).fit(
        clients_from(frame, client_column="owner")
    )
    assert not plain.privacy.private and plain.privacy.epsilon is None


def test_two_runs_without_a_seed_differ(schema, frame):
    owners = clients_from(frame, client_column="owner")
    runs = [Synthesizer("fvae", schema, private=False, rounds=1, **SMALL).fit(owners) for _ in range(2)]
    assert not np.array_equal(*[run.generator.parts["decoder"].numpy() for run in runs])


def test_a_loaded_run_samples_what_the_saved_one_did(made, saved):
    loaded = Synthesizer.load(saved)
    pd.testing.assert_frame_equal(loaded.sample(50, seed=3), made.sample(50, seed=3))
    assert loaded.privacy == made.privacy and loaded.history == made.history
    assert not loaded.sample(50, seed=4).equals(made.sample(50, seed=3))


def test_a_saved_run_has_the_files_of_a_run(saved):
    names = {path.name for path in saved.iterdir()}
    assert {
        "recipe.toml",
        "schema.json",
        "generator.safetensors",
        "ledger.jsonl",
        "privacy.json",
        "history.jsonl",
    } <= names
    assert "state" not in names


def test_the_generator_file_holds_the_decoder_and_the_balance_alone(saved):
    tensors = load_file(saved / "generator.safetensors")
    assert {name.split(".")[0] for name in tensors} == {"decoder", "balance"}
    assert float(tensors["balance"].sum()) == pytest.approx(1)


def test_a_shared_encoder_is_not_released_either(schema, frame, tmp_path):
    plain = Synthesizer("fvae", schema, private=False, rounds=1, **SMALL)
    plain.fit(clients_from(frame, client_column="owner"), folder=tmp_path / "RUN")
    names = load_file(tmp_path / "RUN" / "generator.safetensors")
    assert {name.split(".")[0] for name in names} == {"decoder", "balance"}


def test_a_save_does_not_overwrite(made, saved):
    before = (saved / "recipe.toml").read_bytes()
    with pytest.raises(BadInput, match="exists"):
        made.save(saved)
    assert (saved / "recipe.toml").read_bytes() == before


def test_a_condition_on_the_label_is_met_by_all_rows(made):
    assert set(made.sample(100, condition={"ill": "yes"})["ill"]) == {"yes"}


def test_conditions_on_other_columns_are_met_by_all_rows(made):
    rows = made.sample(20, condition={"sex": "F", "grade": "high", "ill": "no"}, seed=1)
    assert len(rows) == 20 and list(rows.index) == list(range(20))
    assert (rows[["sex", "grade", "ill"]] == ["F", "high", "no"]).all(axis=None)


def test_a_condition_on_a_number_compares_numbers(made):
    assert set(made.sample(3, condition={"age": "30.0"}, seed=1)["age"]) == {30}


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ({"sex": "X"}, "no such category; known: F, M"),
        ({"ill": "yess"}, "did you mean 'yes'"),
        ({"agee": "3"}, "did you mean 'age'"),
        ({"owner": "3"}, "no such column"),
        ({"age": "300"}, "between 0 and 99"),
        ({"age": "old"}, "between 0 and 99"),
    ],
)
def test_an_impossible_condition_is_one_sentence(made, condition, words):
    with pytest.raises(BadInput, match=words):
        made.sample(5, condition=condition)


def test_a_condition_that_almost_nothing_meets_says_how_many_do(made, monkeypatch):
    monkeypatch.setattr("fedsynth.synthesis.generator._TRIES", 1)
    with pytest.raises(BadInput, match="of 1000 synthetic rows meet it"):
        made.sample(900, condition={"age": "30"})


def test_no_rows_are_refused(made):
    with pytest.raises(BadInput, match="rows=0"):
        made.sample(0)


def test_an_untrained_synthesizer_says_so(schema):
    fresh = Synthesizer("fvae", schema, private=False)
    for ask in (lambda: fresh.sample(1), lambda: fresh.privacy):
        with pytest.raises(BadInput, match="fit"):
            ask()


def test_a_synthesizer_needs_a_schema():
    with pytest.raises(BadInput, match="Schema.load"):
        Synthesizer("fvae", epsilon=1, delta=1e-5)


def test_a_declared_class_balance_is_public_and_costs_nothing(schema, frame):
    declared = replace(schema, label_probabilities=(0.9, 0.1))
    made = Synthesizer("dpd_fvae", declared, epsilon=8, delta=1e-3, rounds=1, seed=1, **SMALL)
    made.fit(clients_from(frame, client_column="owner"))
    assert not any("balance" in release["what"] for release in made.privacy.releases)
    assert (made.sample(2000, seed=1)["ill"] == "no").mean() == pytest.approx(0.9, abs=0.03)


def test_a_table_without_a_label_needs_no_class_balance(schema, frame):
    made = Synthesizer("dpd_fvae", schema.with_label(None), private=False, rounds=1, seed=1, **SMALL)
    rows = made.fit(clients_from(frame, client_column="owner")).sample(10)
    assert "ill" in rows and made.generator.balance is None


def test_images_come_out_with_labels(image_schema, tmp_path):
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (40, 8, 8), dtype=np.uint8)
    owners = image_clients_from(
        images, draw.integers(0, 2, 40).astype(str), owners=np.repeat(np.arange(10), 4)
    )
    made = Synthesizer("fvae", image_schema, private=False, rounds=1, seed=1, width=2, latent=2).fit(owners)
    made.save(tmp_path / "RUN")
    drawn, labels = Synthesizer.load(tmp_path / "RUN").sample(6, condition={"digit": "1"}, seed=2)
    again, _ = made.sample(6, condition={"digit": "1"}, seed=2)
    assert drawn.shape == (6, 8, 8) and drawn.dtype == np.uint8 and set(labels) == {"1"}
    assert np.array_equal(drawn, again)
    with pytest.raises(BadInput, match="label only"):
        made.sample(6, condition={"pixel": "1"})
