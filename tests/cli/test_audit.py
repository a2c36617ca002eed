import json

import pytest

from fedsynth import Synthesizer, clients_from
from fedsynth.cli.main import main
from fedsynth.privacy import central
from fedsynth.privacy.statement import Statement
from fedsynth.rng import Rng

QUICK = ["--canaries", 1200, "--seed", 1]


@pytest.fixture(scope="module")
def run(schema, frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("audited") / "RUN"
    settings = {"epsilon": 8.0, "delta": 1e-3, "rounds": 5, "rate": 0.5, "hidden": (8,), "latent": 2}
    Synthesizer("dpd_fvae", schema, **settings).fit(clients_from(frame, client_column="owner"), folder=path)
    return path


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    told = capsys.readouterr()
    return ended.value.code or 0, told.out, told.err


def test_a_run_is_audited_and_its_statement_says_so(run, capsys):
    code, told, errors = call(capsys, "audit", run, *QUICK, "--json")
    found = json.loads(told)
    assert code == 0 and "5/5  training with canaries" in errors and not found["exceeds_claim"]
    assert 1.0 < found["epsilon_lower"] < found["claimed_epsilon"] <= 8.0
    statement = Statement.load(run / "privacy.json")
    told_of = ("epsilon_lower", "confidence", "method")
    assert {key: statement.audited[key] for key in told_of} == {key: found[key] for key in told_of}
    for name in ("white_box", "one_run"):
        assert statement.audited[name] == {key: found[name][key] for key in told_of}
    assert 0 < found["one_run"]["epsilon_lower"] < found["white_box"]["epsilon_lower"]
    assert found["one_run"]["canaries"] == 1200 and found["one_run"]["guesses"] > found["one_run"]["correct"]
    assert found["claim"] == {"epsilon": found["claimed_epsilon"], "delta": found["delta"]}
    assert "An audit" in str(statement) and statement.epsilon <= 8.0


def test_halved_noise_in_the_code_exits_with_one(run, capsys, monkeypatch):
    noisy = central.noisy

    def too_quiet(total, scale, step, rng):
        return noisy(total, scale / 2, step, rng)

    monkeypatch.setattr(central, "noisy", too_quiet)
    code, told, _ = call(capsys, "audit", run, *QUICK)
    assert code == 1 and "MORE LEAKS THAN IS CLAIMED" in told


def test_the_rows_of_the_run_are_not_needed(run, capsys, tmp_path):
    assert "data" not in json.dumps((run / "recipe.toml").read_text())
    code, told, _ = call(capsys, "audit", run, *QUICK)
    assert code == 0 and "No contradiction" in told and "claimed for all releases" in told


def test_a_recipe_is_audited_without_any_data(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, told, _ = call(
        capsys,
        "audit",
        "central_vae",
        "--epsilon",
        2,
        "--rounds",
        1,
        "--set",
        "records=3000",
        *QUICK,
        "--json",
    )
    assert code == 0 and json.loads(told)["unit"] == "record" and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dpd_fvea"], "did you mean 'dpd_fvae'"),
        (["dpd_fvae", "--unit", "record"], "cannot promise that"),
        (["dpd_fvae_local_published"], "nothing to audit"),
        (["dpd_fvae", "--set", "rate"], "KEY=VALUE"),
        (["dpd_fvae", "--rounds", 2, "--canaries", 10], "fewer than 200"),
        (["dpd_fvae", "--epsilon", -1], "epsilon=-1"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_two(arguments, words, capsys):
    code, told, errors = call(capsys, "audit", *arguments)
    assert code == 2 and words in errors and told == ""


def test_a_run_without_privacy_has_nothing_to_audit(schema, frame, tmp_path, capsys):
    made = Synthesizer("fvae", schema, private=False, rounds=1, hidden=(8,), latent=2, seed=1)
    made.fit(clients_from(frame, clients=5, rng=Rng(1)), folder=tmp_path / "RUN")
    code, _, errors = call(capsys, "audit", tmp_path / "RUN")
    assert code == 2 and "claims nothing" in errors
