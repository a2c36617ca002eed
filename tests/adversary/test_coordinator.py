"""A coordinator that reads all it is sent learns nothing of who was drawn: known sizes undo the amplification."""

import json
import threading

import numpy as np
import pandas as pd
import tomli_w

from fedsynth.deploy.link.messages import Work, read
from fedsynth.deploy.server_job import ServerJob
from fedsynth.deploy.site.site_file import SiteFile
from fedsynth.research.queue_channel import QueueChannel

SCHEMA = {
    "version": 1,
    "kind": "table",
    "label": "ill",
    "columns": [
        {"name": "age", "type": "integer", "min": 0, "max": 99},
        {"name": "ill", "type": "binary", "categories": ["no", "yes"]},
    ],
}
ROUNDS = 3
FREE = {
    "loss",
    "seconds",
    "time",
    "hash",
    "previous",
    "files",
}  # noise, and what a clock or the noise decides


def site_in(folder, number):
    """A site with ten clients."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(number)
    ill = np.where(draw.random(20) < 0.5, "yes", "no")
    rows = {"patient": [f"p{row // 2}" for row in range(20)], "age": draw.integers(20, 90, 20), "ill": ill}
    pd.DataFrame(rows).to_csv(folder / "rows.csv", index=False)
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    keys = {
        "data": {"file": "rows.csv", "schema": "schema.json", "client_column": "patient"},
        "budget": {"epsilon": 100.0, "delta": 1e-2},
        "policy": {"recipes": ["dpd_fvae"], "minimum_cohort": 2},
        "state": {"folder": "state"},
    }
    (folder / "site.toml").write_text(tomli_w.dumps(keys))
    return SiteFile.load(folder / "site.toml").site().handle


class Listening(QueueChannel):
    """Counts the clients of each round, which the server alone may know."""

    def __init__(self, handles):
        super().__init__(handles)
        self.cohorts = {}

    def send(self, site, payload):
        message = read(payload)
        if isinstance(message, Work) and message.job == "round":
            self.cohorts[message.version] = self.cohorts.get(message.version, 0) + len(message.tensors["ids"])
        super().send(site, payload)


def conducted(folder):
    """What the coordinator was told and may fetch, and how many clients were drawn in each round."""
    channel = Listening({name: site_in(folder / name, number) for number, name in enumerate(("ada", "bern"))})
    asked = {
        "run": "r1", "minimum_sites": 2, "round_s": 60.0, "schema": SCHEMA,
        "request": {
            "recipe": "dpd_fvae", "epsilon": 8.0, "delta": 1e-2, "rounds": ROUNDS,
            "arguments": {"hidden": [4], "latent": 1, "epochs": 1, "rate": 0.5},
        },
    }  # fmt: skip
    lines = []

    def tell(line=None, **news):
        lines.append({**(line or {}), **{name: str(value) for name, value in news.items()}})

    ServerJob().conduct(asked, channel, folder / "run", tell, threading.Event())
    for path in ServerJob().results(folder / "run"):
        if path.suffix == ".jsonl":
            lines += [{"file": path.name, **json.loads(line)} for line in path.read_text().splitlines()]
    public = [{name: value for name, value in line.items() if name not in FREE} for line in lines]
    return public, channel.cohorts


def test_what_a_coordinator_gets_is_the_same_whoever_was_drawn(tmp_path):
    runs = [conducted(tmp_path / str(number)) for number in range(3)]
    assert len({str(sorted(cohorts.items())) for _, cohorts in runs}) > 1, (
        "the cohorts must differ to be told apart"
    )
    for told, _ in runs[1:]:
        different = [(one, other) for one, other in zip(runs[0][0], told, strict=True) if one != other]
        assert not different, f"the coordinator was told of the cohort: {different[0]}"
