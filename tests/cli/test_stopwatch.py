"""Where the time of a run went."""

import json
import re

import pytest

from fedsynth.cli.main import main
from samples import TABLE


def test_profile_says_where_the_time_went_and_adds_up(frame, tmp_path, capsys):
    rows, schema = tmp_path / "rows.csv", tmp_path / "schema.json"
    frame.to_csv(rows, index=False)
    schema.write_text(json.dumps(TABLE))
    model = ["--recipe", "fvae", "--set", "hidden=4", "--set", "latent=2", "--client-column", "owner"]
    how = ["--no-privacy", "--rounds", "2", "--rows", "5", "--quiet", "--profile", "--json"]
    with pytest.raises(SystemExit) as left:
        main(["run", str(rows), "--schema", str(schema), *model, *how, "--out", str(tmp_path / "RUN")])
    told = capsys.readouterr()
    assert not left.value.code and json.loads(told.out)
    lines = [re.fullmatch(r" *(\d+\.\d\d) s( +\d+ %)?  (.+)", line) for line in told.err.splitlines()]
    seconds = {line[3]: float(line[1]) for line in lines}
    whole = seconds.pop("in all")
    assert [*seconds] == [
        "libraries",
        "reading, encoding, noise and opening",
        "rounds",
        "last fit and statement",
        "libraries of the public page",
        "drawing and writing rows",
        "the public page",
    ]
    assert abs(sum(seconds.values()) - whole) < 0.1
