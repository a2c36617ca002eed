"""What `fit` takes: frames, files, one table for each site, linked tables, images and texts; and what it refuses."""

import numpy as np
import pandas as pd
import pytest

from fedsynth import Schema, Synthesizer, clients_from
from fedsynth.data.clients import clients_in
from fedsynth.errors import BadInput, FedsynthError
from fedsynth.synthesis.inputs import source_of
from fedsynth.synthesis.request import Request

LOOSE = Request("fvae", private=False)


def fitted(schema, data, **how):
    return Synthesizer(schema=schema, epsilon=1, rounds=2, seed=1).fit(data, **how)


def owned(data, request, schema):
    return clients_in(data, source_of(request, schema), schema)


def test_a_frame_a_file_and_clients_give_the_same_rows(schema, frame, tmp_path):
    frame.to_csv(tmp_path / "rows.csv", index=False)
    schema.save(tmp_path / "schema.json")
    clients = clients_from(frame, client_column="owner")
    runs = [
        fitted(schema, clients),
        fitted(schema, frame, client_column="owner"),
        fitted(tmp_path / "schema.json", str(tmp_path / "rows.csv"), client_column="owner"),
        fitted(schema.with_client("owner"), frame),
    ]
    first, *others = (run.sample(20, seed=1) for run in runs)
    for rows in others:
        pd.testing.assert_frame_equal(first, rows)


def test_a_frame_whose_rows_have_no_owner_has_a_client_for_each_row(schema, frame):
    assert "each row was treated as one client" in str(
        fitted(schema.with_client(None), frame.drop(columns="owner")).privacy.caveats
    )


def test_a_list_has_a_site_for_each_frame(schema, frame):
    sites = [frame[:30], frame[30:100]]
    sited = owned(sites, Request("fvae", private=False, client_column="owner"), schema)
    apart = frame[:30]["owner"].nunique() + frame[30:100]["owner"].nunique()
    assert len(sited) == apart and sited.names[0].startswith("site 1: ") and sited.rows == 100
    bare = [site.drop(columns="owner") for site in sites]
    assert owned(bare, LOOSE, schema.with_client(None)).sizes.tolist() == [30, 70]


def test_a_run_that_was_fitted_on_a_file_can_be_resumed_by_the_command(schema, frame, tmp_path):
    frame.drop(columns="owner").to_csv(tmp_path / "rows.csv", index=False)
    made = fitted(schema, tmp_path / "rows.csv", clients=50, folder=tmp_path / "RUN")
    again = Request.from_toml(Synthesizer.load(tmp_path / "RUN").request.to_toml())
    assert (again.data, again.clients, again.split_seed) == (str(tmp_path / "rows.csv"), 50, 1)
    assert made.request.clients == 50


def test_linked_tables_are_passed_by_name_or_as_a_folder(tmp_path):
    person = pd.DataFrame({"person id": range(60), "sex": ["F", "M"] * 30})
    visit = pd.DataFrame(
        {"person id": list(range(60)) * 2, "day": [1] * 60 + [9] * 60, "ward": ["a", "b"] * 60}
    )
    with pytest.warns(UserWarning, match="belong to 'person'"):
        schema = Schema.draft({"person": person, "visit": visit})
    frames = {"person": person, "visit": visit}
    for name, table in frames.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    assert len(owned(frames, Request(private=False), schema)) == 60
    assert len(owned(tmp_path, Request(private=False), schema)) == 60
    with pytest.raises(BadInput, match="'visit' is missing"):
        owned({"person": person}, Request(private=False), schema)


def test_images_and_texts_in_memory(image_schema):
    images = np.zeros((10, 8, 8), dtype=np.uint8)
    pair = (images, np.array(["0", "1"] * 5))
    assert len(owned(pair, Request(private=False, clients=5), image_schema)) == 5
    words = Schema(kind="text", vocabulary=("a", "b"), length=4)
    texts = pd.DataFrame({"text": ["a b", "b", "a"], "who": [1, 1, 2]})
    assert len(owned(texts, Request(private=False, client_column="who"), words)) == 2
    assert len(owned(["a b", "b", "a"], Request(private=False, clients=3), words)) == 3


@pytest.mark.parametrize(
    ("data", "how", "words"),
    [
        (
            7,
            {},
            "got an object of type int for a table of 5 columns; expected a pandas DataFrame, the path of a file",
        ),
        ([], {}, "cannot be a list"),
        ("nowhere.csv", {}, "there is no such file"),
        ("frame", {"client_column": "ownr"}, "did you mean 'owner'"),
        ("frame", {"client_column": "owner", "clients": 3}, "choose one of them"),
        ("clients", {"clients": 3}, "leave them out"),
    ],
)
def test_what_cannot_be_fitted_says_what_to_pass(schema, frame, data, how, words):
    given = {"frame": frame, "clients": clients_from(frame, client_column="owner")}
    with pytest.raises(BadInput, match=words):
        fitted(schema, given.get(data, data) if isinstance(data, str) else data, **how)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"epsilonn": 1}, "did you mean 'epsilon'"),
        ({"epsilon": 1, "roundz": 3}, "did you mean 'rounds'"),
        ({"epsilon": 1, "pair_round": 3}, "did you mean 'pair_rounds'"),
        ({"epsilon": 1, "pair_rounds": "three"}, "expected a whole number"),
        ({}, "a private run needs epsilon=; use private=False"),
        ({"epsilon": 1, "accept": ("all",)}, "accept='all'"),
    ],
)
def test_a_wrong_keyword_is_refused_when_the_synthesizer_is_made(schema, keywords, words):
    with pytest.raises(BadInput, match=words):
        Synthesizer("marginals", schema, **keywords)


def test_errors_in_python_name_no_flags(schema, frame, tmp_path):
    drafted = Schema.draft(frame, client_column="owner")
    with pytest.raises(FedsynthError) as refused:
        Synthesizer(schema=drafted, epsilon=1).fit(frame)
    assert 'accept="inferred"' in str(refused.value) and "--accept inferred" in refused.value.in_flags
    (tmp_path / "RUN").mkdir()
    (tmp_path / "RUN" / "recipe.toml").touch()
    with pytest.raises(BadInput, match="choose another folder, or continue it with Synthesizer.resume"):
        fitted(schema, frame, folder=tmp_path / "RUN")


def test_a_refusal_names_five_columns_at_most():
    wide = Schema.draft(pd.DataFrame({f"c{number}": [1, 2, 3] for number in range(8)}))
    with pytest.raises(FedsynthError, match="c0, c1, c2, c3, c4 and 3 more: .*schema.made_public"):
        Synthesizer(schema=wide, epsilon=1).fit(
            pd.DataFrame({f"c{number}": [1, 2, 3] * 9 for number in range(8)})
        )


def test_the_names_of_other_libraries_are_translated(schema, frame):
    made = fitted(schema, frame, client_column="owner")
    for keywords, words in (
        ({"num_rows": 5}, "use rows="),
        ({"rows": 5, "conditions": {}}, "use condition="),
        ({"rowz": 5}, "did you mean 'rows'"),
        ({}, r"sample\(1000\)"),
    ):
        with pytest.raises(BadInput, match=words):
            made.sample(**keywords)


def test_a_synthesizer_shows_what_it_is(schema, frame):
    made = Synthesizer(schema=schema, epsilon=1, rounds=2)
    assert repr(made) == "Synthesizer('marginals', a table of 5 columns, epsilon=1, delta=1e-06): not fitted"
    shown = repr(made.fit(frame, client_column="owner"))
    assert "fitted; each client has epsilon 0.99" in shown or "fitted; each client has epsilon 1 " in shown
    assert repr(fitted(schema, frame, client_column="owner")).endswith("fitted; simulation: no privacy")


def test_what_is_not_trained_leaves_no_folder(schema, tmp_path):
    with pytest.raises(BadInput, match="not trained; call fit first"):
        Synthesizer(schema=schema, epsilon=1).save(tmp_path / "RUN")
    assert not (tmp_path / "RUN").exists()


def test_a_number_of_rows_is_a_number(schema, frame):
    made = fitted(schema, frame, client_column="owner")
    for rows in (None, "5", 2.5):
        with pytest.raises(BadInput, match="say how many, for example sample"):
            made.sample(rows)
