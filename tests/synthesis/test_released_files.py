"""A kill at any moment leaves a run that can be read or finished; a file is read for its hash once."""

import shutil

import pytest

from fedsynth import Synthesizer, clients_from
from fedsynth.cli.main import main
from fedsynth.errors import BadInput, NotPrivate
from fedsynth.privacy.ledger import Ledger
from fedsynth.synthesis import released_files
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.released_files import checked_run, problems_of, renewing, synthetic_path

SMALL = {"hidden": (8,), "latent": 2, "batch_size": 8}


@pytest.fixture(scope="module")
def clients(frame):
    return clients_from(frame, client_column="owner")


@pytest.fixture(scope="module")
def finished(schema, clients, tmp_path_factory):
    path = tmp_path_factory.mktemp("finished") / "RUN"
    Synthesizer("dpd_fvae", schema, epsilon=8, delta=1e-3, rounds=2, **SMALL).fit(clients, folder=path)
    return path


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "RUN")


def resume(run):
    with pytest.raises(SystemExit) as ended:
        main(["run", "--out", str(run), "--resume", "--quiet"])
    return ended.value.code or 0


def killed_before_the_seal(run):
    releases = [line.entry for line in Ledger(run / "ledger.jsonl").releases()]
    (run / "ledger.jsonl").unlink()
    (run / "ledger.jsonl.head").unlink()
    Ledger(run / "ledger.jsonl").append_all(releases)
    (run / "state").mkdir()


def test_the_last_line_of_a_finished_run_names_its_files_and_costs_nothing(finished):
    lines = Ledger(finished / "ledger.jsonl").lines()
    assert lines[-1].count == 0 and not any(line.files for line in lines[:-1])
    assert set(lines[-1].files) == {"privacy.json", "generator.safetensors", "schema.json", "recipe.toml"}
    assert checked_run(finished).statement.epsilon <= 8


def test_a_run_that_was_killed_before_its_seal_is_finished_by_resume(run):
    killed_before_the_seal(run)
    with pytest.raises(BadInput, match="--resume"):
        checked_run(run)
    assert resume(run) == 0
    assert problems_of(run) == [] and checked_run(run).sealed and not (run / "state").exists()
    assert "synthetic.parquet" in checked_run(run).hashes


def test_resume_leaves_a_finished_run_as_it_is(run, capsys):
    assert resume(run) == 0  # draws the rows that a run by the command line has
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    capsys.readouterr()
    assert resume(run) == 0
    assert "nothing to resume" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_a_run_of_before_is_read_and_stays_unsealed(run):
    killed_before_the_seal(run)
    (run / "state").rmdir()
    assert not checked_run(run).sealed and problems_of(run) == []
    assert resume(run) == 0 and not checked_run(run).sealed


def test_a_file_that_was_named_but_not_put_in_its_place_is_put_there(run):
    resume(run)
    target = run / "synthetic.parquet"
    whole = target.read_bytes()
    target.rename(run / ".synthetic.fresh.parquet")
    assert problems_of(run) == [] and target.read_bytes() == whole
    target.rename(run / ".synthetic.fresh.parquet")
    assert checked_run(run).synthetic == target


def test_a_file_that_was_not_named_yet_is_drawn_again(run, schema):
    (run / ".synthetic.fresh.parquet").write_bytes(b"half of a file")
    assert checked_run(run).synthetic is None
    assert resume(run) == 0 and problems_of(run) == []
    assert synthetic_path(Folder(run), schema).is_file() and not (run / ".synthetic.fresh.parquet").exists()


def test_a_change_is_not_named_over_another_that_nobody_knows_of(run):
    (run / "privacy.json").write_text("{}")
    with (
        pytest.raises(NotPrivate, match=r"privacy\.json"),
        renewing(Folder(run), "synthetic.parquet") as path,
    ):
        path.write_bytes(b"rows")
    assert not (run / "synthetic.parquet").exists()


def test_a_report_reads_each_file_for_its_hash_once(run):
    resume(run)
    released_files._checked.cache_clear()
    released_files._hash_of.cache_clear()
    with pytest.raises(SystemExit):
        main(["report", str(run)])
    assert released_files._hash_of.cache_info().misses == 5


def test_a_saved_and_a_copied_run_are_whole(finished, tmp_path):
    Synthesizer.load(finished).save(tmp_path / "COPY")
    assert problems_of(tmp_path / "COPY") == [] and checked_run(tmp_path / "COPY").sealed


def test_a_second_fit_is_refused(schema, clients, finished):
    fitted = Synthesizer("dpd_fvae", schema, epsilon=8, delta=1e-3, rounds=1, **SMALL).fit(clients)
    spent = fitted.privacy.epsilon
    for again in (fitted, Synthesizer.load(finished)):
        with pytest.raises(NotPrivate, match="new Synthesizer"):
            again.fit(clients)
    assert fitted.privacy.epsilon == spent and len(fitted.sample(3)) == 3


def test_a_fit_without_a_promise_may_be_repeated(schema, clients):
    plain = Synthesizer("fvae", schema, private=False, rounds=1, **SMALL)
    assert plain.fit(clients).fit(clients).privacy.epsilon is None
