"""Linked tables by commands: a draft, a run that protects whole persons, and samples that keep every link."""

import json

import pandas as pd
import pytest

from fedsynth.cli.main import main
from fedsynth.research.hospital_records import write

pytestmark = pytest.mark.recipe


@pytest.fixture(scope="module")
def hospital(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hospital")
    write(folder / "data", 400, seed=1)
    run = ["run", str(folder / "data"), "--schema", str(folder / "schema.json"), "--epsilon", "8"]
    assert command(*run, "--out", str(folder / "RUN"), "--rows", "300", "--quiet", "--set", "rounds=4") == 0
    return folder


def command(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    return int(end.value.code or 0)


def tables(folder):
    return {name: pd.read_csv(folder / f"{name}.csv") for name in ("person", "visit", "measurement")}


def keep_links(frames):
    person, visit, measurement = frames["person"], frames["visit"], frames["measurement"]
    assert person["person id"].is_unique and visit["visit id"].is_unique
    assert visit["person id"].isin(person["person id"]).all()
    assert measurement["visit id"].isin(visit["visit id"]).all()
    assert (visit["discharge"] >= visit["admission"]).all()
    assert visit["discharge"].max() <= "2024-12-31"
    assert visit.groupby("person id")["admission"].apply(lambda days: days.is_monotonic_increasing).all()
    assert visit.groupby("person id").size().max() <= 40


def test_a_run_releases_whole_persons(hospital):
    frames = tables(hospital / "RUN" / "synthetic")
    assert len(frames["person"]) == 300
    keep_links(frames)
    statement = json.loads((hospital / "RUN" / "privacy.json").read_text())
    assert statement["private"] and statement["unit"] == "client" and statement["epsilon"] <= 8
    assert any("At most 40 rows of visit" in caveat for caveat in statement["caveats"])
    assert command("ledger", "verify", str(hospital / "RUN")) == 0


def test_more_persons_are_sampled_in_pieces(hospital, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fedsynth.synthesis.generator.PIECE", 64)
    assert command("sample", str(hospital / "RUN"), "--rows", "200", "--out", str(tmp_path / "more")) == 0
    assert capsys.readouterr().out.startswith("Wrote 200 persons to ")
    frames = tables(tmp_path / "more")
    assert frames["person"]["person id"].tolist() == list(range(1, 201))
    keep_links(frames)


def test_conditions_on_persons_are_exact(hospital, tmp_path, capsys):
    words = [
        "sample",
        str(hospital / "RUN"),
        "--rows",
        "100",
        "--condition",
        "age>=60",
        "--condition",
        "sex=F",
    ]
    assert command(*words, "--out", str(tmp_path / "old")) == 0
    frames = tables(tmp_path / "old")
    assert len(frames["person"]) == 100
    assert (frames["person"]["age"] >= 60).all() and (frames["person"]["sex"] == "F").all()
    keep_links(frames)
    capsys.readouterr()
    assert (
        command(
            "sample",
            str(hospital / "RUN"),
            "--rows",
            "9",
            "--condition",
            "ward=A",
            "--out",
            str(tmp_path / "no"),
        )
        == 2
    )
    assert "condition on 'ward'" in capsys.readouterr().err


def test_linked_tables_are_not_written_into_a_file(hospital, tmp_path, capsys):
    assert command("sample", str(hospital / "RUN"), "--rows", "5", "--out", str(tmp_path / "few.csv")) == 2
    assert "are written into a folder; name it without '.csv'" in capsys.readouterr().err
    assert not (tmp_path / "few.csv").exists()


def test_a_changed_table_is_found(hospital, tmp_path, capsys):
    import shutil

    copy = tmp_path / "RUN"
    shutil.copytree(hospital / "RUN", copy)
    visit = copy / "synthetic" / "visit.csv"
    visit.write_text(visit.read_text().replace("inpatient", "outpatient", 1))
    assert command("ledger", "verify", str(copy)) != 0
    assert "synthetic" in capsys.readouterr().out


def test_scores_and_report_know_histories(hospital, capsys):
    words = ["--real", str(hospital / "data"), "--schema", str(hospital / "schema.json")]
    assert (
        command("evaluate", *words, "--synthetic", str(hospital / "RUN" / "synthetic"), "--quiet", "--json")
        == 0
    )
    scores = {score["name"]: score for score in json.loads(capsys.readouterr().out)["scores"]}
    assert scores["children per parent: distance"]["value"] < 0.5
    assert scores["steps to the next row: distance"]["detail"]["by"].keys() >= {
        "visit.type",
        "visit.diagnosis",
    }
    assert all(score["failed"] is None for score in scores.values())
    page = (hospital / "RUN" / "public.html").read_text()
    assert "The first synthetic persons in time: rows of visit, 2015-01-01 to 2024-12-31" in page
    assert "--out more\n" in page or "--out more<" in page


def test_a_draft_names_what_it_found_and_is_refused_until_it_is_reviewed(hospital, tmp_path, capsys):
    out = tmp_path / "schema.json"
    assert command("schema", "draft", str(hospital / "data"), "--out", str(out)) == 0
    assert "rows belong to 'visit' by 'visit id'" in capsys.readouterr().err
    run = [
        "run",
        str(hospital / "data"),
        "--schema",
        str(out),
        "--epsilon",
        "1",
        "--out",
        str(tmp_path / "RUN"),
    ]
    assert command(*run) == 2
    assert "person.age" in capsys.readouterr().err


@pytest.mark.parametrize(
    "spoil, sentence",
    [
        (lambda t: t["visit"].assign(**{"person id": 99999}), "belong to no row of 'person'"),
        (lambda t: pd.concat([t["visit"], t["visit"].head(1)]), "is there twice"),
        (lambda t: t["visit"].assign(discharge="2015-01-01"), "constraint 'discharge >= admission'"),
        (lambda t: t["visit"].assign(admission="2020-02-30"), "column 'admission'"),
    ],
)
def test_bad_input_is_one_sentence(hospital, tmp_path, capsys, spoil, sentence):
    import shutil

    shutil.copytree(hospital / "data", tmp_path / "data")
    spoil(tables(hospital / "data")).to_csv(tmp_path / "data" / "visit.csv", index=False)
    run = ["run", str(tmp_path / "data"), "--schema", str(hospital / "schema.json"), "--epsilon", "1"]
    assert command(*run, "--out", str(tmp_path / "RUN")) == 2
    told = capsys.readouterr().err
    assert sentence in told and "Traceback" not in told
    assert not (tmp_path / "RUN" / "ledger.jsonl").exists()


def test_clients_cannot_be_dealt(hospital, tmp_path, capsys):
    run = ["run", str(hospital / "data"), "--schema", str(hospital / "schema.json"), "--epsilon", "1"]
    assert command(*run, "--clients", "10", "--out", str(tmp_path / "RUN")) == 2
    assert "each row of 'person' is a client" in capsys.readouterr().err
