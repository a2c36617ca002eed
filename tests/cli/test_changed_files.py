"""A run whose files somebody changed is believed by no command."""

import json
import shutil

import pytest

from fedsynth.assess.report.server import ServedFolder
from fedsynth.cli.main import main
from fedsynth.privacy.ledger import Ledger
from samples import ROWS, TABLE, make_frame

FILES = ("privacy.json", "generator.safetensors", "schema.json", "recipe.toml", "synthetic.parquet")


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return ended.value.code or 0, printed.out, printed.err


def begin(folder, *more):
    """A small run by the command line."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schema.json").write_text(json.dumps(TABLE))
    make_frame([number // 3 for number in range(120)]).to_csv(folder / "rows.csv", index=False)
    settings = [f"{name}={','.join(map(str, v)) if isinstance(v, tuple) else v}" for name, v in ROWS.items()]
    chosen = [part for setting in settings for part in ("--set", setting)]
    with pytest.raises(SystemExit) as ended:
        main(
            [
                *("run", str(folder / "rows.csv"), "--schema", str(folder / "schema.json")),
                *("--client-column", "owner", "--epsilon", "8", "--rounds", "2", "--rows", "50"),
                *("--recipe", "dpd_fvae", "--quiet", "--out", str(folder / "RUN"), *chosen, *more),
            ]
        )
    assert not ended.value.code
    return folder / "RUN"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return begin(tmp_path_factory.mktemp("finished"), "--delta", "1e-3")


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "RUN")


def edit_statement(run, **changes):
    path = run / "privacy.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}, indent=2) + "\n")


def flip(path):
    """Change one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def without_seal(run):
    """The run as it was written before ledgers named the hashes of files."""
    path = run / "ledger.jsonl"
    releases = [line.entry for line in Ledger(path).releases()]
    for name in ("ledger.jsonl", "ledger.jsonl.head"):
        (run / name).unlink()
    Ledger(path).append_all(releases)


def commands(run, tmp_path):
    return {
        "sample": ("sample", run, "--rows", 5, "--out", tmp_path / "rows.csv"),
        "report": ("report", run),
        "compare": ("compare", run, run),
        "audit": ("audit", run, "--canaries", 300, "--runs", 4, "--seed", 1, "--quiet"),
    }


def test_a_whole_run_is_believed_by_every_command(run, tmp_path, capsys):
    for name, command in commands(run, tmp_path).items():
        assert call(capsys, *command)[0] == 0, name
    code, told, _ = call(capsys, "ledger", "verify", run)
    assert code == 0 and "5 files" in told


@pytest.mark.parametrize("name", ["sample", "report", "compare", "audit"])
@pytest.mark.parametrize("file", FILES)
def test_a_changed_file_is_named_and_refused(run, tmp_path, capsys, name, file):
    if file == "privacy.json":
        edit_statement(run, epsilon=0.1)
    elif file in ("recipe.toml", "schema.json"):
        (run / file).write_text((run / file).read_text().replace("e", "E", 1))
    else:
        flip(run / file)
    public = (run / "public.html").read_bytes()
    code, told, errors = call(capsys, *commands(run, tmp_path)[name])
    assert code == 2 and told == "" and errors.count("\n") == 1
    assert str(run / file) in errors and "restore" in errors
    assert not (tmp_path / "rows.csv").exists() and (run / "public.html").read_bytes() == public


@pytest.mark.parametrize("file", FILES)
def test_ledger_verify_fails_for_a_changed_file_and_for_a_missing_one(run, capsys, file):
    flip(run / file)
    code, told, _ = call(capsys, "ledger", "verify", run, "--json")
    found = json.loads(told)
    assert code == 1 and not found["intact"] and file in found["problems"][0]
    (run / file).unlink()
    code, told, _ = call(capsys, "ledger", "verify", run)
    assert code == 1 and file in told and "missing" in told


def test_the_list_of_runs_shows_no_promise_of_a_changed_statement(run):
    edit_statement(run, epsilon=0.1)
    site = ServedFolder(run.parent)
    listed = json.loads(site.answer("/runs.json").body)["runs"][0]
    assert listed["state"] == "broken" and "privacy.json" in listed["problem"] and listed["epsilon"] is None
    page = site.answer(f"/run/{listed['key']}/public.html")
    assert page.status == 409 and b"privacy.json" in page.body


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 0.1},
        {"delta": 1e-9},
        {"unit": "record"},
        {"releases": []},
        {"trust": "local"},
        {"sampling": "none"},
        {"adjacency": "zero-out"},
    ],
)
def test_the_statement_of_a_run_of_before_is_recomputed(run, tmp_path, capsys, changes):
    without_seal(run)
    assert call(capsys, *commands(run, tmp_path)["report"])[0] == 0
    assert "are not sealed" in (run / "public.html").read_text()
    edit_statement(run, **changes)
    for name in ("report", "compare", "sample"):
        code, _, errors = call(capsys, *commands(run, tmp_path)[name])
        assert code == 2 and "privacy.json" in errors and next(iter(changes)) in errors
    assert call(capsys, "ledger", "verify", run)[0] == 1


def test_a_page_of_a_run_of_before_has_the_recomputed_words(run, tmp_path, capsys):
    without_seal(run)
    edit_statement(run, text="These results are differentially private with epsilon 0.1 and delta 0.001.")
    assert call(capsys, "report", run)[0] == 0
    assert "epsilon 0.1 and" not in (run / "public.html").read_text()


def test_without_its_ledger_nothing_is_believed(run, tmp_path, capsys):
    (run / "ledger.jsonl").unlink()
    (run / "ledger.jsonl.head").unlink()
    for name in ("report", "compare", "sample"):
        code, _, errors = call(capsys, *commands(run, tmp_path)[name])
        assert code == 2 and "ledger.jsonl" in errors and "put" in errors


def test_a_release_after_the_last_statement_is_noticed(run, tmp_path, capsys):
    ledger = Ledger(run / "ledger.jsonl")
    ledger.append_all([ledger.releases()[0].entry])
    code, _, errors = call(capsys, *commands(run, tmp_path)["report"])
    assert code == 2 and "privacy.json" in errors


def test_an_audit_is_a_change_that_the_ledger_knows(run, tmp_path, capsys):
    assert call(capsys, *commands(run, tmp_path)["audit"])[0] == 0
    assert json.loads((run / "privacy.json").read_text())["audited"]
    assert call(capsys, "ledger", "verify", run)[0] == 0
    assert call(capsys, "report", run)[0] == 0


def test_rows_drawn_anew_into_the_run_are_named_by_its_ledger(run, tmp_path, capsys):
    (run / "synthetic.parquet").unlink()
    assert call(capsys, "sample", run, "--rows", 7, "--out", run / "synthetic.parquet")[0] == 0
    assert call(capsys, "ledger", "verify", run)[0] == 0 and call(capsys, "report", run)[0] == 0


def test_rows_that_somebody_else_put_there_are_refused(tmp_path, run, capsys):
    flip(run / "synthetic.parquet")
    ledger = Ledger(run / "ledger.jsonl")
    named = dict(ledger.files() or {})
    named.pop("synthetic.parquet")
    ledger.seal(named)
    code, _, errors = call(capsys, "report", run)
    assert code == 2 and "synthetic.parquet" in errors and "fedsynth sample" in errors


def test_a_delta_that_allows_to_lose_somebody_whole_is_no_complete_promise(tmp_path, capsys):
    run = begin(tmp_path, "--delta", ".4", "--accept", "delta")
    told = json.loads((run / "privacy.json").read_text())
    assert not told["private"] and any("0.4" in words and "40" in words for words in told["caveats"])
    assert call(capsys, "report", run)[0] == 0
    assert "do not publish" in (run / "public.html").read_text()
