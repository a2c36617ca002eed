"""An inspection over a server and three sites as processes: a unit mix-up that nobody may look at."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import tomli_w
from real_sites import SCHEMA, SITES, Federation

from fedsynth.cli.main import main
from fedsynth.data.schema import Schema
from fedsynth.data.table import Table
from fedsynth.inspection.unlabelled import without_label
from fedsynth.privacy.ledger import Ledger

onnx = pytest.importorskip("onnx", reason="ONNX files are made by onnx")
pytest.importorskip("onnxruntime", reason="ONNX files are run by onnxruntime (extra inspect)")
pytestmark = pytest.mark.recipe
WIDTH = Table(without_label(Schema.from_dict(SCHEMA))).width


def patients_with_a_bug(number: int) -> pd.DataFrame:
    """Who has a high body mass index is ill; for every second patient it was written down in another unit."""
    draw = np.random.default_rng(number)
    owner = np.repeat(np.arange(20), 6)
    bmi = 20 + draw.random(len(owner)) * 15
    ill = np.where(bmi > 27.5, "yes", "no")
    bmi = np.where(owner % 2, bmi, bmi + 24)
    return pd.DataFrame(
        {
            "patient": [f"p{number}-{who}" for who in owner],
            "age": draw.integers(20, 90, len(owner)),
            "bmi": np.round(bmi, 1),
            "ill": ill,
        }
    )


def classifier(path):
    """ill if the encoded body mass index is high."""
    helper, numbers = onnx.helper, onnx.TensorProto.FLOAT
    frame = pd.DataFrame({"age": [50, 50], "bmi": [20.0, 35.0]})
    low, high = Table(without_label(Schema.from_dict(SCHEMA))).encode(frame)[0].numpy()
    toward = (high - low) / np.square(high - low).sum()
    weights = np.stack([-toward, toward], 1).astype(np.float32)
    bias = np.array([1.0, -1.0], dtype=np.float32) * float((low + high) @ toward / 2)
    nodes = [
        helper.make_node("MatMul", ["rows", "weights"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("rows", numbers, ["n", WIDTH])],
        [helper.make_tensor_value_info("scores", numbers, ["n", 2])],
        [onnx.numpy_helper.from_array(weights, "weights"), onnx.numpy_helper.from_array(bias, "bias")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    """Three sites that allow inspections."""
    frames = {name: patients_with_a_bug(number) for number, name in enumerate(SITES)}
    made = Federation(tmp_path_factory.mktemp("hospitals"), frames=frames)
    for name in SITES:
        made.site_file(name, inspect=True)
    made.start_all()
    yield made
    made.close()


def configuration(folder, **changes):
    classifier(folder / "bmi.onnx")
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    keys = {
        "data": {"schema": "schema.json"},
        "model": {"onnx": "bmi.onnx"},
        "select": {
            "bad": {"by": "user", "criterion": "correct", "below": 0.7},
            "good": {"by": "user", "criterion": "correct", "above": 0.9},
        },
        "train": {
            "recipe": "dpd_fvae", "epsilon": 30.0, "delta": 1e-2, "rounds": 2,
            "arguments": {"hidden": [16], "latent": 2, "epochs": 1},
        },
        "test": {"models": 4},
        "show": {"examples": 200},
        **changes,
    }  # fmt: skip
    path = folder / "look.toml"
    path.write_text(tomli_w.dumps(keys))
    return path


def command(*words) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0)


@pytest.fixture(scope="module")
def finished(hospitals, tmp_path_factory):
    folder = tmp_path_factory.mktemp("look")
    out = folder / "OUT"
    words = ["inspect", "--federation", hospitals.kits, "--config", configuration(folder), "--out", out]
    assert command(*words, "--minimum-sites", 3, "--round-timeout", 600) == 0
    return out


def test_it_ends_in_the_page_the_verdict_and_a_true_statement(finished):
    page = (finished / "inspection.html").read_text()
    assert "bad" in page and "good" in page
    found = json.loads((finished / "findings.json").read_text())
    assert {finding["name"] for finding in found["contrast"]} == {"age", "bmi", "ill"}
    assert found["fires"] in (True, False, None) and len(found["survey"]) == 1
    told = json.loads((finished / "privacy.json").read_text())
    assert told["private"] and not told["simulation"] and told["epsilon"] <= 30
    assert (told["unit"], told["trust"]) == ("client", "central")
    assert "which of them meet a selection" in told["text"]


def test_every_site_s_ledger_holds_the_questions_and_both_models(finished, hospitals):
    served = Ledger(finished / "ledger.jsonl")
    assert served.verify() == []
    for name in SITES:
        ledger = Ledger(hospitals.folder / name / "state" / "ledger.jsonl")
        assert ledger.verify() == []
        runs = [line.run.split("-", 2)[2] for line in ledger.lines()]
        assert list(dict.fromkeys(runs)) == ["shares-0", "meeting-1", "train-0", "train-1"]
        assert [(line.what, line.event) for line in ledger.lines()] == [
            (line.what, line.event) for line in served.lines()
        ]
        assert 0 < ledger.epsilon(1e-2, unit="client") <= 30


def test_no_row_and_no_name_of_a_patient_reaches_the_server(finished, hospitals):
    for path in (hospitals.kits / "server").rglob("*"):
        if path.is_file():
            assert b"p0-" not in path.read_bytes(), path


def test_posts_that_stay_at_their_sites_are_inspected_too(hospitals, tmp_path, capsys):
    words = {"version": 1, "kind": "text", "vocabulary": ["the", "pain", "is", "gone"], "length": 6}
    (tmp_path / "schema.json").write_text(json.dumps(words))
    for name in SITES:
        folder = hospitals.folder / name
        posts = [{"user": f"{name}-{n % 9}", "post": "the pain is zebra"} for n in range(27)]
        (folder / "posts.jsonl").write_text("".join(json.dumps(post) + "\n" for post in posts))
        (folder / "words.json").write_text(json.dumps(words))
        data = {
            "file": "posts.jsonl",
            "schema": "words.json",
            "client_column": "user",
            "text_column": "post",
        }
        keys = {
            "data": data,
            "budget": {"epsilon": 100.0, "delta": 1e-2},
            "policy": {"recipes": ["dp_fedavg_lm"], "minimum_cohort": 1, "inspect": True},
            "state": {"folder": "state"},
        }
        (folder / "site.toml").write_text(tomli_w.dumps(keys))
    keys = {
        "data": {"schema": "schema.json"},
        "select": {"unknown": {"by": "example", "criterion": "out_of_vocabulary"}},
        "train": {"recipe": "dp_fedavg_lm", "epsilon": 30.0, "delta": 1e-2, "rounds": 1},
    }
    path, out = tmp_path / "look.toml", tmp_path / "OUT"
    path.write_text(tomli_w.dumps(keys))
    words = ["inspect", "--federation", hospitals.kits, "--config", path, "--out", out, "--json"]
    assert command(*words, "--minimum-sites", 3, "--round-timeout", 600) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["privacy"]["private"] and told["privacy"]["epsilon"] <= 30
    assert "Unknown words by position" in (out / "inspection.html").read_text()
    assert list((hospitals.kits / "server").rglob("*.jsonl"))
    for path in (hospitals.kits / "server").rglob("*"):
        assert not path.is_file() or b"zebra" not in path.read_bytes(), path


def test_sites_that_forbid_it_are_named_with_the_reason(hospitals, tmp_path, capsys):
    for name in SITES:
        hospitals.site_file(name, inspect=name == "ada")
    words = ["--federation", hospitals.kits, "--config", configuration(tmp_path), "--out", tmp_path / "OUT"]
    assert command("inspect", *words, "--minimum-sites", 2, "--round-timeout", 600) != 0
    told = capsys.readouterr().err
    # shown when it arrives, or at the end if the server ended first
    assert re.search("bern:? refuses: inspections are not allowed here", told) and "inspect = true" in told
