import json

import numpy as np
import pandas as pd
import pytest

from fedsynth.cli.main import main
from fedsynth.data.clients import clients_from
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.released_files import write_released
from fedsynth.synthesis.synthesizer import Synthesizer


def rows(frame, count):
    return frame.drop(columns="owner").iloc[:count]


@pytest.fixture(scope="module")
def made(tmp_path_factory, schema, frame):
    folder = tmp_path_factory.mktemp("report") / "run"
    small = {"latent": 2, "hidden": (8,), "epochs": 1, "batch_size": 4}
    synthesizer = Synthesizer("dpd_fvae", schema, private=False, rounds=2, **small)
    synthesizer.fit(clients_from(frame, client_column="owner"), folder=folder)
    drawn = synthesizer.sample(60)
    assert isinstance(drawn, pd.DataFrame)
    write_released(drawn, Folder(folder), schema)
    return folder


def call(*arguments):
    with pytest.raises(SystemExit) as left:
        main(["report", *map(str, arguments)])
    return left.value.code


def test_a_report_without_real_rows_tells_of_privacy_only(made, capsys):
    assert call(made, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["compared_with_real_rows"] is False
    assert "Not measured" in (made / "report.html").read_text()
    assert "no complete privacy promise" in (made / "public.html").read_text()


@pytest.mark.recipe
def test_a_report_with_real_rows_measures_and_keeps_the_scores(made, tmp_path, frame, capsys):
    real = tmp_path / "real.csv"
    rows(frame, 120).to_csv(real, index=False)
    before = (made / "public.html").read_bytes() if (made / "public.html").exists() else None
    assert call(made, "--real", real, "--quiet") == 0
    assert "internal" in capsys.readouterr().out
    text = (made / "report.html").read_text()
    assert "internal: made from real rows" in text and "Column by column" in text
    assert json.loads((made / "scores.json").read_text())
    assert before is None or (made / "public.html").read_bytes() == before


@pytest.mark.recipe
def test_rows_that_do_not_fit_fail_with_their_reason_and_the_page_is_written(made, tmp_path, frame):
    real = tmp_path / "real.csv"
    rows(frame, 120).assign(bmi=np.nan).to_csv(real, index=False)
    assert call(made, "--real", real, "--quiet") == 0
    assert "What could not be measured" in (made / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--test", "x.csv"], "--test needs --real"),
        (["--real", "nowhere.csv"], "there is no such file"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(made, capsys, arguments, reason):
    assert call(made, *arguments) == 2
    told = capsys.readouterr().err
    assert reason in told and len(told.splitlines()) == 1


def test_a_folder_that_is_no_run_is_refused(tmp_path, capsys):
    assert call(tmp_path) == 2
    assert "not a run" in capsys.readouterr().err
