import json

import pytest
from typer.testing import CliRunner

from fedsynth.cli.main import app
from fedsynth.errors import BadInput
from samples import TABLE

RUNNER = CliRunner()
SMALL = ["--rounds", "2", "--epsilon", "8", "--delta", "1e-3", "--set", "hidden=8", "--set", "latent=2"]
TRY = ["--try", "clip=0.5", "--try", "clip=1"]


@pytest.fixture(scope="module")
def files(tmp_path_factory, frame):
    place = tmp_path_factory.mktemp("tune")
    (place / "schema.json").write_text(json.dumps(TABLE))
    frame.to_parquet(place / "rows.parquet")
    return place


def tune(*arguments):
    return RUNNER.invoke(app, ["tune", *map(str, arguments)])


def test_the_best_of_a_free_search_runs(files):
    out = files / "free"
    done = tune(
        files / "rows.parquet", "--public", "--schema", files / "schema.json", "--client-column", "owner",
        "--recipe", "dpd_fvae", *SMALL, *TRY, "--out", out, "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert len(told["trials"]) == 2 and "nothing" in told["cost"]
    config = ["--config", str(out / "best.toml"), "--out", str(files / "run"), "--quiet"]
    made = RUNNER.invoke(app, ["run", str(files / "rows.parquet"), *config])
    assert made.exit_code == 0, made.output
    again = tune("--from", files / "run", "--clients", 20, *SMALL[:2], *TRY, "--out", files / "again")
    assert again.exit_code == 0, again.output
    assert "synthetic rows only" in again.output
    seeded = RUNNER.invoke(
        app, ["run", str(files / "rows.parquet"), "--seed", "1", *config[:2], "--out", str(files / "s")]
    )
    assert seeded.exit_code == 0, seeded.output
    refused = tune("--from", files / "s", "--clients", 20, *SMALL[:2], *TRY, "--out", files / "no")
    assert "not private" in str(refused.exception)


def test_a_charged_search_leaves_a_run(files):
    out = files / "charged"
    done = tune(
        files / "rows.parquet", "--charge", "--trials", 2, "--schema", files / "schema.json",
        "--client-column", "owner", "--recipe", "dpd_fvae", *SMALL, *TRY, "--out", out,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "the best of about 2 trainings over 2 settings" in done.output
    assert (out / "synthetic.parquet").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "say what the rows are"),
        (["--public", "--charge"], "say what the rows are"),
        (["--public", "--try", "clip"], "expected KEY=VALUE"),
        (["--from", "nowhere"], "no finished run"),
        (["--public", "--budget", "policy.toml"], "spends none of it"),
    ],
)
def test_a_search_that_does_not_say_what_it_reads_is_refused(tmp_path, arguments, reason):
    done = tune(*arguments, *SMALL, "--schema", "none.json", "--out", tmp_path / "out")
    assert isinstance(done.exception, BadInput)
    assert reason in str(done.exception)
