import os
import signal

import pytest
import torch

from fedsynth.errors import BadInput
from fedsynth.federation.state import ServerState
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.generator import Generator


def test_a_folder_that_holds_something_is_not_written_over(tmp_path):
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(BadInput, match="exists already"):
        Folder(tmp_path).refuse_existing()
    with pytest.raises(BadInput, match="exists already"):
        Folder(tmp_path / "note.txt").refuse_existing()


def test_an_empty_folder_may_be_used(tmp_path):
    Folder(tmp_path).refuse_existing()


def test_a_folder_without_a_recipe_is_no_run(tmp_path):
    with pytest.raises(BadInput, match="not a run"):
        Folder(tmp_path).read_recipe()


def test_a_damaged_recipe_is_named(tmp_path):
    (tmp_path / "recipe.toml").write_text("recipe = ")
    with pytest.raises(BadInput, match="recipe.toml: not valid TOML"):
        Folder(tmp_path).read_recipe()


def test_history_is_cut_back_to_the_checkpoint_and_a_torn_line_is_left_out(tmp_path):
    place = Folder(tmp_path)
    for version in (1, 2, 3):
        place.append_history({"version": version})
    with place.history.open("a") as file:
        file.write('{"version": 4, "lo')
    assert [line["version"] for line in place.read_history()] == [1, 2, 3]
    place.cut_history(2)
    assert [line["version"] for line in place.read_history()] == [1, 2]


def test_a_damaged_generator_is_named(tmp_path, schema):
    path = tmp_path / "generator.safetensors"
    with pytest.raises(BadInput, match="--resume"):
        Generator.load(path, schema, "fvae", {})
    path.write_bytes(b"not safetensors")
    with pytest.raises(BadInput, match="cannot be read as safetensors"):
        Generator.load(path, schema, "fvae", {})


def test_a_generator_of_another_size_does_not_fit(tmp_path, schema, build):
    from fedsynth.models.model import initialise
    from fedsynth.rng import Rng

    small = {"hidden": (8,), "latent": 2}
    decoder = initialise(build("fvae").model, Rng(1))["decoder"]
    Generator(schema, "fvae", small, {"decoder": decoder}).save(tmp_path / "generator.safetensors")
    with pytest.raises(BadInput, match="does not fit the recipe"):
        Generator.load(tmp_path / "generator.safetensors", schema, "fvae", {**small, "latent": 3})


def test_a_run_does_not_go_on_with_other_rows(tmp_path):
    folder = Folder(tmp_path)
    folder.state.mkdir()
    folder.same_data("a hash")
    folder.same_data("a hash")
    with pytest.raises(BadInput, match="not those that this run began with"):
        folder.same_data("another")


@pytest.mark.parametrize("damage", [b"", b"not safetensors", b"\x08" + b"\0" * 7 + b"{}      "])
def test_a_damaged_checkpoint_is_named_and_nothing_is_lost(tmp_path, damage):
    place = Folder(tmp_path / "run")
    store = place_with_a_checkpoint(place)
    checkpoint = place.state / "checkpoint.safetensors"
    checkpoint.write_bytes(damage)
    before = {path: path.read_bytes() for path in place.path.rglob("*") if path.is_file()}
    with pytest.raises(
        BadInput, match="checkpoint.safetensors: the checkpoint cannot be read.*Restore it from a copy"
    ):
        place.restore(store)
    assert {path: path.read_bytes() for path in place.path.rglob("*") if path.is_file()} == before


def place_with_a_checkpoint(place):
    place.path.mkdir()
    place.recipe.write_text('recipe = "fvae"\n')
    store = place.store()
    place.checkpoint(ServerState(1, {"decoder": torch.zeros(3)}), store)
    return store


def test_one_process_owns_a_run_and_a_kill_lets_go_of_it(tmp_path):
    place = Folder(tmp_path / "run")
    place_with_a_checkpoint(place)
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        with place.owned(begun=True):
            os.write(told, b"x")
            signal.pause()
    assert os.read(ready, 1) == b"x"
    with pytest.raises(BadInput, match="another process works on this run"), place.owned(begun=True):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with place.owned(begun=True):
        pass


def test_a_run_that_another_process_began_or_finished_meanwhile_is_not_written_over(tmp_path):
    place = Folder(tmp_path / "run")
    place_with_a_checkpoint(place)
    with pytest.raises(BadInput, match="made this run meanwhile"), place.owned(begun=False):
        pass
    place.generator.touch()
    place.privacy.touch()
    with pytest.raises(BadInput, match="made this run meanwhile"), place.owned(begun=True):
        pass


def test_what_was_never_begun_is_not_owned(tmp_path):
    with pytest.raises(BadInput, match="not a run"), Folder(tmp_path / "run").owned(begun=True):
        pass
    assert not (tmp_path / "run").exists()
