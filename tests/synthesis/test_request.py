import pytest

from fedsynth.data.configuration import read_file
from fedsynth.errors import BadInput
from fedsynth.synthesis.request import Request

GOOD = {"epsilon": 8.0, "delta": 1e-5}


def test_a_request_comes_back_from_its_toml():
    request = Request("fvae", clients=4, seed=0, accept=("delta",), arguments={"hidden": (8, 4)}, **GOOD)
    back = Request.from_toml(request.to_toml())
    assert back.arguments["hidden"] == [8, 4] and back.accept == ("delta",) and back.seed == 0
    assert Request.from_toml(back.to_toml()) == back


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"epsilom": 8}, "did you mean 'epsilon'"),
        ({"epsilom": 8, "deltaa": 8}, "deltaa"),
        ({**GOOD, "epsilon": "8"}, "epsilon='8': expected a number"),
        ({**GOOD, "clients": 2.5}, "clients=2.5: expected a whole number"),
        ({**GOOD, "seed": True}, "seed=True"),
        ({**GOOD, "arguments": 3}, "arguments=3: expected a table"),
        ({**GOOD, "accept": "delta"}, "accept='delta': expected a list"),
        ({**GOOD, "accept": ["deltaa"]}, "did you mean 'delta'"),
        ({**GOOD, "private": "yes"}, "expected true or false"),
        ({**GOOD, "rows": 0}, "rows=0"),
        ({**GOOD, "recipe": None}, "recipe=None"),
        ({"delta": 1e-5}, "--epsilon"),
        ({"private": False, "epsilon": 8.0}, "--no-privacy"),
        ({"private": False, "noise_multiplier": 1.0}, "--no-privacy"),
    ],
)
def test_a_bad_key_or_value_is_one_sentence(keys, words):
    with pytest.raises(BadInput, match=words):
        Request.from_toml(keys)


@pytest.mark.parametrize("content", [b"a = ", b"\xff\xfe"])
def test_a_file_that_is_no_toml_is_named(content, tmp_path):
    (tmp_path / "bad.toml").write_bytes(content)
    with pytest.raises(BadInput, match="bad.toml: not valid TOML"):
        read_file(tmp_path / "bad.toml")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadInput, match="none.toml: no such file"):
        read_file(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ({"epsilon": 0.0}, "epsilon=0"),
        ({"epsilon": -1.0}, "epsilon=-1"),
        ({"epsilon": float("nan")}, "epsilon=nan"),
        ({"epsilon": float("inf")}, "epsilon=inf"),
        ({"delta": 0.0}, "delta=0"),
        ({"delta": 1.0}, "delta=1"),
        ({"noise_multiplier": 0.0}, "noise_multiplier=0"),
        ({"rounds": 0}, "rounds=0"),
    ],
)
def test_an_impossible_budget_is_refused(budget, words):
    with pytest.raises(BadInput, match=words):
        _ = Request(**{**GOOD, **budget}).target


def test_a_run_goes_on_as_what_it_was_begun_as():
    begun = Request(epsilon=8.0, delta=1e-5, clients=10)
    begun.refuse_changes(
        {"epsilon": 8, "data": "moved.csv", "device": "cuda", "matmul": "tf32", "rounds": None, "accept": ()}
    )
    with pytest.raises(BadInput, match=r"as it was begun: epsilon was 8\.0, not 4\.0, seed was None, not 0;"):
        begun.refuse_changes({"epsilon": 4.0, "seed": 0})
