import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedsynth.cli.schema import app
from fedsynth.data.image import write_images
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput

FRAME = pd.DataFrame({"id": ["p", "p", "q"], "age": [20, 30, 40], "ill": ["no", "yes", "no"]})


@pytest.fixture
def folder(tmp_path):
    FRAME.to_csv(tmp_path / "data.csv", index=False)
    return tmp_path


def command(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, BadInput):
        raise result.exception
    return result


def draft(folder, *more):
    arguments = ("--label", "ill", "--client-column", "id", "--out", folder / "schema.json")
    return command("draft", folder / "data.csv", *arguments, *more)


def test_a_draft_is_written_and_says_what_to_review(folder):
    result = draft(folder)
    assert result.exit_code == 0
    assert "age: integer, 20 to 40 (inferred)" in result.stdout
    schema = Schema.load(folder / "schema.json")
    assert (schema.label, schema.client, schema.inferred()) == ("ill", "id", ("age", "ill"))


def test_a_draft_as_json_is_one_object(folder):
    printed = json.loads(draft(folder, "--json").stdout)
    assert printed["inferred"] == ["age", "ill"]
    assert Schema.from_dict(printed["schema"]) == Schema.load(folder / "schema.json")


def test_a_schema_that_exists_is_overwritten_only_by_force(folder):
    (folder / "schema.json").write_text("mine")
    with pytest.raises(BadInput, match="--force"):
        draft(folder)
    assert (folder / "schema.json").read_text() == "mine"
    assert draft(folder, "--force").exit_code == 0


def test_data_checked_against_its_own_draft_fits(folder):
    draft(folder)
    result = command("check", folder / "data.csv", "--schema", folder / "schema.json")
    assert result.exit_code == 0 and "fits" in result.stdout


def test_every_problem_is_printed_and_the_exit_code_is_1(folder):
    draft(folder)
    FRAME.assign(age=99, ill="maybe").to_csv(folder / "other.csv", index=False)
    result = command("check", folder / "other.csv", "--schema", folder / "schema.json")
    assert result.exit_code == 1
    assert "column 'age'" in result.stdout and "'maybe'" in result.stdout and "2 problems." in result.stdout


def test_problems_as_json_are_one_object(folder):
    draft(folder)
    FRAME.drop(columns="age").to_csv(folder / "other.csv", index=False)
    result = command("check", folder / "other.csv", "--schema", folder / "schema.json", "--json")
    printed = json.loads(result.stdout)
    assert result.exit_code == 1 and not printed["fits"] and len(printed["problems"]) == 1


def test_images_are_drafted_and_checked(folder):
    write_images(np.zeros((2, 4, 4), np.uint8), folder / "images.npz", np.array(["a", "b"]))
    assert command("draft", folder / "images.npz", "--out", folder / "image.json").exit_code == 0
    assert command("check", folder / "images.npz", "--schema", folder / "image.json").exit_code == 0
    write_images(np.zeros((2, 5, 4), np.uint8), folder / "other.npz", np.array(["a", "b"]))
    assert command("check", folder / "other.npz", "--schema", folder / "image.json").exit_code == 1


@pytest.mark.parametrize("name", ["draft", "check"])
def test_help_shows_an_example(name):
    assert "Example: fedsynth schema" in command(name, "--help").stdout


def test_a_draft_of_images_without_labels_has_nothing_to_review(tmp_path):
    write_images(np.zeros((3, 8, 6), np.uint8), tmp_path / "images.npz")
    told = command("draft", tmp_path / "images.npz", "--out", tmp_path / "schema.json").stdout
    assert "images of 8 x 6 pixels" in told and "nferred" not in told


def test_texts_are_checked_and_drafted_as_such(tmp_path):
    (tmp_path / "posts.jsonl").write_text('{"user": "u", "post": "a cat"}\n')
    Schema(kind="text", vocabulary="bytes").save(tmp_path / "schema.json")
    given = ("check", tmp_path / "posts.jsonl", "--schema", tmp_path / "schema.json")
    assert command(*given, "--text-column", "post").exit_code == 0
    missing = command(*given)
    assert missing.exit_code == 1 and "text" in missing.stdout
    with pytest.raises(BadInput, match="fedsynth schema text"):
        command("draft", tmp_path / "posts.jsonl", "--out", tmp_path / "other.json")
