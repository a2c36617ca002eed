"""A site whose files are broken between jobs refuses, without telling what is in them."""

import stat

import pytest
from test_server_job import SCHEMA, site_file
from three_sites import terms_for

from fedsynth.data.schema import Schema
from fedsynth.deploy.environment import NOTICES, SITE_FILE
from fedsynth.deploy.link.codec import fingerprint
from fedsynth.deploy.link.messages import Invite, Notice, Refuse, Report, Settle, Status, read, write
from fedsynth.deploy.site.activity_log import ActivityLog
from fedsynth.deploy.site.site_file import SiteFile
from fedsynth.deploy.site_job import SiteJob
from fedsynth.errors import BadInput


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.setenv(SITE_FILE, str(site_file(tmp_path / "ada", 0)))
    monkeypatch.setenv(NOTICES, str(tmp_path / "notices.log"))
    return SiteJob()


def test_broken_rows_are_a_refusal_without_their_values_and_the_site_is_told_in_full(job, tmp_path):
    rows, asked = tmp_path / "ada" / "rows.csv", write(Status("r1"))
    whole = rows.read_text()
    rows.write_text(whole.replace("yes", "secret diagnosis"))
    for _ in range(2):
        refused = read(job.handle(asked))
    assert isinstance(refused, Refuse) and (refused.run, refused.code) == ("r1", "data")
    assert refused.answers == fingerprint(asked) and not refused.final
    assert "secret" not in refused.reason and "fedsynth site check" in refused.reason
    assert "secret diagnosis" in (tmp_path / "notices.log").read_text()
    noted = ActivityLog(tmp_path / "ada" / "state" / "audit.jsonl").lines()
    assert [(line["what"], line["run"], line["code"]) for line in noted] == [("refused", "r1", "data")]
    assert "secret diagnosis" in noted[0]["reason"]
    rows.write_text(whole)
    assert isinstance(read(job.handle(asked)), Report), "it takes part again once they are mended"


def test_a_refusal_is_in_the_sites_own_output_once_and_what_a_restart_brings_is_not(job, tmp_path):
    job.handle(write(Settle("r1", 1, 0, 0, ())))  # a run that was not begun here: the server begins it again
    assert not (tmp_path / "notices.log").exists()
    terms = terms_for("site_vae", Schema.from_dict(SCHEMA), {})
    for _ in range(2):
        assert isinstance(read(job.handle(write(Invite("r2", terms, 0)))), Refuse)
    said = (tmp_path / "notices.log").read_text().splitlines()
    assert len(said) == 1 and said[0].startswith("refuses run r2: recipe='site_vae': not allowed here")


def test_a_state_folder_is_for_its_owner_alone_and_refused_if_others_may_enter(tmp_path):
    described = SiteFile.load(site_file(tmp_path / "ada", 0))
    state = described.site().folder
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    state.chmod(0o750)
    with pytest.raises(BadInput, match=f"run chmod -R go-rwx {state}"):
        described.site()


def test_what_the_server_has_to_say_is_in_the_sites_own_output_once_and_short(job, tmp_path):
    for text in ("its kit was copied", "its kit was copied", "x" * 3000):
        assert isinstance(read(job.handle(write(Notice("r1", text)))), Report)
    said = (tmp_path / "notices.log").read_text().splitlines()
    assert said[0] == "the server says: its kit was copied" and len(said) == 2 and len(said[1]) < 600


def test_a_server_cannot_write_to_the_terminal_of_a_site_nor_fill_its_output(job, tmp_path):
    job.handle(write(Notice("r1", "\x1b[2J\x1b]0;all is well\x07 look")))
    for number in range(300):
        job.handle(write(Notice("r1", f"sentence {number}")))
    said = (tmp_path / "notices.log").read_text()
    assert said.splitlines()[0] == "the server says: [2J ]0;all is well look"
    assert len(said.splitlines()) == 100
