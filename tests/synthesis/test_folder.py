import pytest

from fedsynth.errors import BadInput
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
