"""Texts through the command line."""

import json

import numpy as np
import pandas as pd
import pytest

from fedsynth.cli.main import main

WORDS = ["see", "the", "red", "cat", "run", "home", "now"]


@pytest.fixture(scope="module")
def posts(tmp_path_factory):
    """Sixty people who write a few short sentences each, and a public vocabulary that lacks one of their words."""
    folder = tmp_path_factory.mktemp("posts")
    draw = np.random.default_rng(0)
    lines = [
        {"user": f"u{user}", "text": " ".join(draw.choice(WORDS, 6)) + "."}
        for user in range(60)
        for _ in range(3)
    ]
    (folder / "posts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    vocabulary = [*WORDS[:-1], "."]
    schema = {"version": 1, "kind": "text", "vocabulary": vocabulary, "length": 8}
    (folder / "schema.json").write_text(json.dumps(schema))
    return folder


def run(folder, *flags):
    """The exit code of the command, run in this process."""
    words = ["run", str(folder / "posts.jsonl"), "--schema", str(folder / "schema.json"), "--quiet"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--client-column", "user", "--recipe", "dp_fedavg_lm", *flags])
    return ended.value.code or 0


def test_posts_become_synthetic_texts_with_a_statement(posts, tmp_path):
    out = tmp_path / "RUN"
    assert (
        run(posts, "--epsilon", "8", "--delta", "1e-3", "--rounds", "3", "--rows", "50", "--out", str(out))
        == 0
    )
    told = json.loads((out / "privacy.json").read_text())
    assert told["private"] and 7 < told["epsilon"] <= 8 and told["unit"] == "client"
    texts = pd.read_parquet(out / "synthetic.parquet")["text"]
    assert len(texts) == 50
    assert {word for text in texts for word in text.split()} <= {*WORDS[:-1], ".", "UNK"}


def test_a_text_column_that_is_not_there_is_one_sentence(posts, tmp_path, capsys):
    assert run(posts, "--no-privacy", "--text-column", "body", "--out", str(tmp_path / "RUN")) == 2
    assert "no column 'body'" in capsys.readouterr().err


def test_posts_that_are_not_utf8_are_one_sentence_that_shows_no_text(posts, tmp_path, capsys):
    broken = tmp_path / "posts.jsonl"
    broken.write_bytes(b'{"user": "u1", "text": "secret caf\xe9"}\n')
    with pytest.raises(SystemExit) as ended:
        main(
            ["run", str(broken), "--schema", str(posts / "schema.json"), "--client-column", "user"]
            + ["--recipe", "dp_fedavg_lm", "--no-privacy", "--out", str(tmp_path / "RUN")]
        )
    told = capsys.readouterr().err
    assert ended.value.code == 2 and "line 1 is not UTF-8" in told and "secret" not in told


def test_users_with_one_post_and_with_empty_posts_take_part_or_not(posts, tmp_path):
    lines = [{"user": "one", "text": "see the cat."}, {"user": "none", "text": "  "}]
    more = (posts / "posts.jsonl").read_text() + "\n" + "\n".join(map(json.dumps, lines))
    place = tmp_path / "odd"
    place.mkdir()
    (place / "posts.jsonl").write_text(more)
    (place / "schema.json").write_text((posts / "schema.json").read_text())
    out = tmp_path / "RUN"
    flags = ["--epsilon", "8", "--delta", "1e-3", "--rounds", "1", "--set", "rate=1", "--rows", "5"]
    assert run(place, *flags, "--out", str(out)) == 0
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert history[0]["clients"] == 61  # the sixty and the one with a post


def test_the_statement_names_where_the_words_come_from(posts, tmp_path):
    out = tmp_path / "RUN"
    assert run(posts, "--epsilon", "8", "--delta", "1e-3", "--rounds", "1", "--out", str(out)) == 0
    told = json.loads((out / "privacy.json").read_text())
    assert any("7 words of the vocabulary are taken to be public" in line for line in told["caveats"])


def test_evaluate_scores_the_model_of_the_run_itself(posts, tmp_path, capsys):
    out = tmp_path / "RUN"
    assert run(posts, "--epsilon", "8", "--delta", "1e-3", "--rounds", "1", "--out", str(out)) == 0
    capsys.readouterr()
    given = {"--real": posts / "posts.jsonl", "--test": posts / "posts.jsonl", "--run": out}
    given |= {"--synthetic": out / "synthetic.parquet", "--schema": out / "schema.json"}
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", *(str(word) for pair in given.items() for word in pair), "--quiet", "--json"])
    scores = {score["name"]: score for score in json.loads(capsys.readouterr().out)["scores"]}
    own = scores["perplexity of unseen texts under the generator"]
    assert ended.value.code in (0, None) and 1 < own["value"] < 100 and own["detail"]["unigrams"] > 1


def test_a_report_scores_the_model_of_the_run_itself(posts, tmp_path):
    out = tmp_path / "RUN"
    assert (
        run(posts, "--epsilon", "8", "--delta", "1e-3", "--rounds", "1", "--rows", "50", "--out", str(out))
        == 0
    )
    texts = pd.read_json(posts / "posts.jsonl", lines=True)
    texts[:90].to_csv(tmp_path / "real.csv", index=False)
    texts[90:].to_csv(tmp_path / "test.csv", index=False)
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "report",
                f"{out}",
                "--real",
                f"{tmp_path}/real.csv",
                "--test",
                f"{tmp_path}/test.csv",
                "--quiet",
            ]
        )
    scores = {score["name"]: score["value"] for score in json.loads((out / "scores.json").read_text())}
    assert ended.value.code in (0, None)
    assert 1 < scores["perplexity of unseen texts under the generator"] < 100
