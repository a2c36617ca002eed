"""A federation as users have it: site.toml files, keys from the key service, the server's job, masked sums."""

import json
import threading

import numpy as np
import pandas as pd
import pytest

from fedsynth.data.schema import Schema
from fedsynth.deploy.link.codec import fingerprint
from fedsynth.deploy.link.messages import Refuse, Stage, read, write
from fedsynth.deploy.server_job import ServerJob
from fedsynth.deploy.site.site_file import SiteFile
from fedsynth.errors import BadInput, FedsynthError
from fedsynth.research.queue_channel import QueueChannel
from fedsynth.synthesis.request import Request
from fedsynth.transport.keys import create

NAMES = ("ada", "bern", "cern")
SCHEMA = {
    "version": 1, "kind": "table", "label": "ill",
    "columns": [{"name": "age", "type": "integer", "min": 0, "max": 99},
                {"name": "ill", "type": "binary", "categories": ["no", "yes"]}],
}  # fmt: skip
TOML = """
[data]
file = "rows.csv"
schema = "schema.json"
[budget]
epsilon = 10.0
delta = 1e-3
unit = "record"
[policy]
recipes = ["site_vae"]
transports = ["secagg"]
minimum_cohort = 3
[state]
folder = "state"
"""


def site_at(folder, name, keys):
    place = folder / name
    place.mkdir()
    draw = np.random.default_rng(len(name))
    rows = pd.DataFrame({"age": draw.integers(20, 80, 60), "ill": draw.choice(["no", "yes"], 60)})
    rows.to_csv(place / "rows.csv", index=False)
    (place / "schema.json").write_text(json.dumps(SCHEMA))
    secret = f'[keys]\nfolder = "{keys / name}"\n' if keys else ""
    (place / "site.toml").write_text(TOML + secret)
    return SiteFile.load(place / "site.toml").site()


def failing(site, times, stage="confirm"):
    """The site, but for so many stages that it does not answer."""
    left = [times]

    def handle(payload):
        message = read(payload)
        if left[0] and isinstance(message, Stage) and message.name == stage:
            left[0] -= 1
            return write(Refuse(message.run, fingerprint(payload), "error", "out of order"))
        return site.handle(payload)

    return handle


def conducted(folder, sites, handles=None, **changes):
    arguments = {"records": 180, "batch_size": 30, "hidden": (8,), "latent": 2}
    request = Request("site_vae", epsilon=5.0, delta=1e-3, rounds=2, arguments=arguments, **changes)
    schema = Schema.from_dict(SCHEMA).to_dict()
    asked = {
        "run": "r1",
        "request": request.to_toml(),
        "schema": schema,
        "minimum_sites": 3,
        "round_s": 300.0,
    }
    channel = QueueChannel({name: site.handle for name, site in sites.items()} | (handles or {}))
    ServerJob().conduct(asked, channel, folder / "run", lambda *_, **__: None, threading.Event())
    return json.loads((folder / "run" / "privacy.json").read_text())


def test_sites_with_keys_train_over_masked_sums_and_the_statement_says_so(tmp_path):
    create(tmp_path / "keys", sites=NAMES)
    sites = {name: site_at(tmp_path, name, tmp_path / "keys") for name in NAMES}
    stated = conducted(tmp_path, sites)
    assert stated["private"] and stated["trust"] == "distributed" and stated["unit"] == "record"
    assert stated["epsilon"] <= 5.0
    assert any("at least 3 of the 3 parties" in caveat for caveat in stated["caveats"])
    assert {line.trust for site in sites.values() for line in site.ledger.lines()} == {"distributed"}


def test_patients_of_a_site_are_protected_one_by_one_and_masked_together(tmp_path):
    create(tmp_path / "keys", sites=NAMES)
    sites = {}
    for name in NAMES:
        site_at(tmp_path, name, tmp_path / "keys")
        place = tmp_path / name
        rows = pd.read_csv(place / "rows.csv").assign(patient=[f"{name}-{row // 6}" for row in range(60)])
        rows.to_csv(place / "rows.csv", index=False)
        text = (place / "site.toml").read_text().replace('unit = "record"', 'unit = "client"')
        text = text.replace('"schema.json"', '"schema.json"\nclient_column = "patient"')
        (place / "site.toml").write_text(text)
        sites[name] = SiteFile.load(place / "site.toml").site()
    stated = conducted(tmp_path, sites, unit="client", accept=("delta",))
    assert stated["private"] and (stated["unit"], stated["trust"]) == ("client", "distributed")
    words = " ".join(stated["caveats"])
    assert "at least 30 of the 30 parties" in words and "at least 20 honest ones" in words
    assert "its own clients, 10 at most" in words and "1.22 times as large" in words
    assert stated["against"]["public"] < stated["against"]["participant"] == stated["epsilon"]
    assert stated["epsilon"] < 5.0  # all thirty patients added noise, three more than were needed


def test_a_round_that_too_few_could_open_is_done_again_and_paid_for_again(tmp_path):
    create(tmp_path / "keys", sites=NAMES)
    sites = {name: site_at(tmp_path, name, tmp_path / "keys") for name in NAMES}
    stated = conducted(tmp_path, sites, {"bern": failing(sites["bern"], 1)})
    assert stated["private"] and stated["epsilon"] <= 5.0
    rounds = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    lines = [line.what for line in sites["ada"].ledger.lines()]
    again = [what for what in lines if "asked again" in what]
    assert len(again) == 1 and len(lines) > len(rounds)


def test_rounds_that_never_open_end_with_the_reason(tmp_path):
    create(tmp_path / "keys", sites=NAMES)
    sites = {name: site_at(tmp_path, name, tmp_path / "keys") for name in NAMES}
    with pytest.raises(FedsynthError, match="2 of 3 parties answered the stage confirm|budget|take part"):
        conducted(tmp_path, sites, {"bern": failing(sites["bern"], 100)})
    assert not (tmp_path / "run" / "generator.safetensors").exists()


def test_a_site_without_keys_refuses_a_masked_run(tmp_path):
    sites = {name: site_at(tmp_path, name, None) for name in NAMES}
    with pytest.raises(FedsynthError, match="not installed here"):
        conducted(tmp_path, sites)


def test_keys_that_are_not_there_are_named(tmp_path):
    with pytest.raises(BadInput, match=r"identity\.key"):
        site_at(tmp_path, "ada", tmp_path / "nowhere")
