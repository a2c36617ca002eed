"""The two ends of an inspection's job: a site as its site.toml describes it, and the server's folder."""

import json

import numpy as np
import pytest
import tomli_w
from bars import SCHEMA, asked, bars
from sites_with_bars import classifier

from fedsynth.cli.main import main
from fedsynth.deploy.environment import SITE_FILE
from fedsynth.deploy.inspection.coordinator import OverSites, Sent
from fedsynth.deploy.inspection.server_job import call_of
from fedsynth.deploy.link.messages import Accept, Invite, read, write
from fedsynth.deploy.link.patience import TooFewSites
from fedsynth.deploy.server_job import ServerJob
from fedsynth.deploy.site_job import SiteJob
from fedsynth.errors import BadInput, FedsynthError, Incompatible
from fedsynth.inspection.onnx_graph import MOST_BYTES
from fedsynth.inspection.plan import InspectionPlan
from fedsynth.privacy.central import gaussian_event
from fedsynth.privacy.ledger import Ledger
from fedsynth.research.queue_channel import QueueChannel

pytest.importorskip("onnx", reason="ONNX files are made by onnx")
WRONG = {"by": "example", "criterion": "misclassified"}


def sent_by_a_coordinator(**changes):
    plain = asked(WRONG, None, model=None, models=0)
    over = OverSites(None, plain, Sent(classifier()), 1, 60.0)  # the kit is needed to submit it alone
    return {
        "run": "20261116-abc",
        "minimum_sites": 1,
        "request": plain.request.to_toml(),
        "schema": SCHEMA.to_dict(),
        "round_s": 60.0,
        "inspection": json.loads(json.dumps(over.looked_for)),
        **changes,
    }


@pytest.fixture
def site_file(tmp_path, monkeypatch):
    """A site with images that belong to sixty clients."""
    raw = bars(0.5)
    np.savez(tmp_path / "rows.npz", images=raw.data[0], labels=raw.data[1], writer=raw.owner)
    SCHEMA.save(tmp_path / "schema.json")
    keys = {
        "data": {"file": "rows.npz", "schema": "schema.json", "client_column": "writer"},
        "budget": {"epsilon": 30.0, "delta": 1e-2},
        "policy": {"recipes": ["moment_vae"], "minimum_cohort": 1, "inspect": True},
        "state": {"folder": "state"},
    }
    (tmp_path / "site.toml").write_text(tomli_w.dumps(keys))
    monkeypatch.setenv(SITE_FILE, str(tmp_path / "site.toml"))


def invitation():
    call = call_of(sent_by_a_coordinator(), QueueChannel({}), lambda *_: None)
    first = InspectionPlan(call.name, call.inspection.selections, 1.0, call.source, call.first_question)
    return write(Invite(first.run, call.terms(first, 0, {})))


def test_a_site_with_images_of_many_owners_takes_part_with_all_of_them(site_file):
    answer = read(SiteJob().handle(invitation()))
    assert isinstance(answer, Accept) and answer.clients == 60


def test_an_inspection_that_was_interrupted_is_not_gone_on_with_and_says_that_it_counts(tmp_path):
    folder = tmp_path / "runs" / "20261116-abc"
    folder.mkdir(parents=True)
    Ledger(folder / "ledger.jsonl").append(gaussian_event(1.0), what="a question", run="20261116-abc")
    with pytest.raises(FedsynthError, match=r"interrupted after 1 releases.*and count"):
        ServerJob().conduct(sent_by_a_coordinator(), QueueChannel({}), folder, lambda **_: None, None)


def test_a_model_that_is_too_large_is_not_sent():
    with pytest.raises(BadInput, match="at most 33554432 go to a site"):
        Sent(b"x" * (MOST_BYTES + 1))


def test_what_sites_cannot_do_is_refused_before_anything_is_sent():
    with pytest.raises(Incompatible, match=r"\[budget\] total: over sites each site's own budget"):
        OverSites(None, asked(total=30.0), Sent(), 1, 60.0)


def test_too_few_sites_do_not_speak_of_going_on():
    call = call_of(sent_by_a_coordinator(), QueueChannel({}), lambda *_: None)
    with pytest.raises(TooFewSites, match="begin another inspection: this one is not resumed") as told:
        call.gather()
    assert "--resume" not in str(told.value)


def test_the_command_teaches_what_sites_must_allow(capsys):
    with pytest.raises(SystemExit):
        main(["inspect", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "inspect = true" in told and "--federation" in told and "runs there only" in told
