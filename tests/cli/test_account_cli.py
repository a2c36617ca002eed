"""`fedsynth account` in all directions."""

import json

import pytest
from typer.testing import CliRunner

from fedsynth.cli.main import app
from fedsynth.errors import BadInput, BudgetExhausted, NotPrivate

KEYS = {
    "epsilon", "delta", "noise_multiplier", "rounds", "rate", "clients", "sampling", "adjacency", "unit", "accountant",
}  # fmt: skip


def run(*arguments):
    result = CliRunner().invoke(app, ["account", *arguments, "--delta", "1e-5"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def answer(text):
    return json.loads(run(*text.split(), "--json").stdout)


def test_epsilon_from_noise_cohort_and_rounds():
    found = answer("--noise-multiplier 1 --clients 500 --cohort 100 --rounds 30")
    assert set(found) >= KEYS
    assert found["epsilon"] == pytest.approx(7.93, abs=0.005)
    assert (found["rate"], found["clients"], found["sampling"], found["adjacency"]) == (
        0.2,
        500,
        "poisson",
        "add-remove",
    )
    assert (found["unit"], found["accountant"], found["rounds"], found["noise_multiplier"]) == (
        "client",
        "pld",
        30,
        1.0,
    )


def test_a_fixed_cohort_is_replace_one_by_renyi():
    found = answer("--noise-multiplier 1 --clients 500 --cohort 100 --rounds 30 --sampling fixed")
    assert found["epsilon"] == pytest.approx(60.54, abs=0.01)
    assert (found["adjacency"], found["accountant"]) == ("replace-one", "rdp")
    papers = answer(
        "--noise-multiplier 1 --clients 500 --cohort 100 --rounds 30 --sampling fixed --relative-to sensitivity"
    )
    assert papers["epsilon"] == pytest.approx(15.0, abs=0.01) and papers["noise_multiplier"] == 1


def test_noise_from_epsilon():
    found = answer("--epsilon 8 --rate 0.2 --rounds 30")
    assert 7.99 < found["epsilon"] <= 8 and found["noise_multiplier"] == pytest.approx(0.995, abs=0.001)
    assert found["clients"] is None


def test_rounds_from_epsilon_and_noise():
    assert answer("--epsilon 10 --rate 0.2 --noise-multiplier 1")["rounds"] == 48
    assert answer("--epsilon 10 --rate 0.2 --noise-multiplier 1 --accountant rdp")["rounds"] == 38
    assert answer("--epsilon 10 --rate 0.2 --noise-multiplier 1 --accountant rdp-legacy")["rounds"] == 30


def test_cohort_and_clients_from_epsilon():
    cohort = answer("--epsilon 2 --clients 10000 --noise-multiplier 1 --rounds 50")
    assert cohort["solved"] == "cohort" and 1.98 < cohort["epsilon"] <= 2
    clients = answer(f"--epsilon 2 --cohort {cohort['cohort']} --noise-multiplier 1 --rounds 50")
    assert clients["solved"] == "clients" and clients["clients"] == pytest.approx(10000, rel=0.02)


def test_without_sampling_one_round_is_the_analytic_gaussian():
    found = answer("--epsilon 1")
    assert (found["sampling"], found["rounds"]) == ("none", 1)
    assert found["noise_multiplier"] == pytest.approx(3.731, abs=0.001)


def test_the_text_is_one_sentence_and_legacy_is_labelled_on_standard_error():
    result = run("--noise-multiplier", "2", "--accountant", "rdp-legacy")
    assert (
        result.stdout.startswith("epsilon ") and "rdp-legacy" in result.stdout and "1 round," in result.stdout
    )
    assert "do not state it" in result.stderr


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("--epsilon 1 --noise-multiplier 1 --rounds 3", BadInput, "nothing is asked"),
        ("--rounds 3", BadInput, "only one value"),
        (
            "--noise-multiplier 1 --rate 0.1 --sampling replacement",
            BadInput,
            "with replacement has no accountant",
        ),
        (
            "--noise-multiplier 1 --clients 9 --cohort 3 --sampling fixed --adjacency add-remove",
            NotPrivate,
            "fixed size",
        ),
        (
            "--noise-multiplier 1 --rate 0.1 --adjacency replace-one --accountant rdp",
            NotPrivate,
            "use accountant 'pld'",
        ),
        ("--noise-multiplier 1 --rate 1.5", BadInput, "lies in"),
        ("--noise-multiplier 0", BadInput, "above 0"),
        ("--noise-multiplier inf", BadInput, "at most 1e\\+12"),
        ("--noise-multiplier 1 --clients 99999999999999999 --cohort 9", BadInput, "at most 1e\\+12"),
        ("--noise-multiplier 1 --rate 0.1 --cohort 3", BadInput, "same thing"),
        ("--noise-multiplier 1 --clients 3 --cohort 9", BadInput, "part of the clients"),
        ("--noise-multiplier 1 --sampling poisson", BadInput, "needs --rate"),
        ("--epsilon 0.1 --noise-multiplier 0.5 --rate 0.5", BudgetExhausted, "not even one round"),
        ("--noise-multiplier 1 --accountant pdl", BadInput, "did you mean 'pld'"),
    ],
)
def test_what_cannot_be_answered_is_explained(text, error, message):
    with pytest.raises(error, match=message):
        CliRunner().invoke(app, ["account", *text.split(), "--delta", "1e-5"], catch_exceptions=False)
