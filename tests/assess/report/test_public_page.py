import ast
import inspect
import shutil
from pathlib import Path

import numpy as np
import pytest
from small_run import HOSTILE, SIMULATION, make_run, reseal, scored

from fedsynth.assess.report import public
from fedsynth.assess.report.public import public_page, write_public
from fedsynth.assess.report.record import Released
from fedsynth.data.image import write_images
from fedsynth.data.schema import Schema

RELEASED = (
    "generator.safetensors",
    "privacy.json",
    "schema.json",
    "recipe.toml",
    "synthetic.parquet",
    "ledger.jsonl",
    "ledger.jsonl.head",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("public"))


def test_the_page_is_the_same_to_the_byte_where_the_real_data_never_were(run, tmp_path):
    with_all = make_run(tmp_path, "with")
    scored().save(with_all)
    (with_all / "real.csv").write_text("age,secret\n41,17\n")
    elsewhere = tmp_path / "another machine"
    elsewhere.mkdir()
    for name in RELEASED:
        shutil.copy(with_all / name, elsewhere / name)
    assert write_public(with_all).read_bytes() == write_public(elsewhere).read_bytes()


@pytest.mark.parametrize("name", ["history.jsonl", "scores.json", "details.json"])
def test_what_is_internal_does_not_change_the_page(tmp_path, name):
    run = make_run(tmp_path)
    before = public_page(Released.read(run))
    (run / name).write_text("17 4711\n")
    assert public_page(Released.read(run)) == before


def test_the_paths_in_the_recipe_are_left_out(tmp_path):
    run = make_run(tmp_path)
    recipe = run / "recipe.toml"
    recipe.write_text(
        'data = "/secret/patients.csv"\nschema = "/secret/s.json"\nbudget = "/secret/b"\n'
        + recipe.read_text()
    )
    reseal(run)
    assert "secret" not in public_page(Released.read(run))


def test_no_module_of_the_page_reads_internal_files():
    source = inspect.getsource(public)
    imported = {node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)}
    assert not imported & {
        "fedsynth.assess.suite",
        "fedsynth.privacy.ledger",
        "fedsynth.synthesis.folder",
    }


def test_hashes_and_the_head_of_the_ledger_can_be_checked(run):
    released = Released.read(run)
    text = public_page(released)
    assert all(found in text for found in released.hashes.values())
    assert released.ledger_head is not None and released.ledger_head in text


def test_a_hostile_name_is_text_and_nothing_else(run):
    assert HOSTILE not in public_page(Released.read(run))


def test_a_simulation_is_marked_as_not_to_be_published(tmp_path):
    text = public_page(Released.read(make_run(tmp_path, **SIMULATION)))
    assert "do not publish" in text and "may be published:" not in text


def test_images_are_shown_as_one_picture(run):
    released = Released.read(run)
    schema = Schema.from_dict({"version": 1, "kind": "image", "height": 8, "width": 8, "channels": 1})
    images = np.zeros((20, 8, 8), dtype=np.uint8), None
    fields = {**released.__dict__, "schema": schema, "synthetic": images}
    text = public_page(Released(**fields))
    assert text.count("data:image/png;base64,") == 1 and "8 × 8" in text


def test_a_run_without_synthetic_data_has_a_page(tmp_path):
    run = make_run(tmp_path)
    (run / "synthetic.parquet").unlink()
    assert "No synthetic data" in public_page(Released.read(run))


def test_images_of_a_run_are_read_from_their_file(tmp_path):
    run = make_run(tmp_path)
    Schema.from_dict({"version": 1, "kind": "image", "height": 8, "width": 8, "channels": 1}).save(
        run / "schema.json"
    )
    write_images(np.zeros((5, 8, 8), dtype=np.uint8), Path(run / "synthetic.npz"))
    reseal(run)
    assert "data:image/png" in public_page(Released.read(run))
