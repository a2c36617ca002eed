"""Pictures over sealed sums: what the server filled in before the first round reaches the sites and the key-holder."""

import json
import threading

import numpy as np
import pytest
from safetensors.torch import load_file

from fedsynth.cli.main import main
from fedsynth.data.schema import Schema
from fedsynth.deploy.link.messages import Work, read
from fedsynth.deploy.server_job import ServerJob
from fedsynth.deploy.site.site_file import SiteFile
from fedsynth.research.queue_channel import QueueChannel
from fedsynth.synthesis.request import Request
from fedsynth.transport import keys
from samples import IMAGE

NAMES = ("ada", "bern", "cern")
TOML = """
[data]
file = "images.npz"
schema = "schema.json"
[budget]
epsilon = 100.0
delta = 1e-3
unit = "record"
[policy]
recipes = ["pp_fedgan"]
transports = ["he"]
minimum_cohort = 2
[state]
folder = "state"
[test]
seed = 3
"""
LITTLE = {
    "order": "together", "frequencies": 12, "directions": 4, "width": 2, "painter": 4, "steps": 1, "batch_rate": 0.5,
    "usual_records": 20, "generator_batch": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run of three sites with twenty pictures each, and all the work that they were sent."""
    folder = tmp_path_factory.mktemp("pictures")
    keys.create(folder / "keys", sites=NAMES, clients=len(NAMES))
    sites, sent = {}, []
    for number, name in enumerate(NAMES):
        place = folder / name
        place.mkdir()
        draw = np.random.default_rng(number)
        labels = np.arange(20) % 2
        images = (draw.random((20, 8, 8)) * 120 + 100 * labels[:, None, None]).astype(np.uint8)
        np.savez(place / "images.npz", images=images, labels=labels.astype(str))
        (place / "schema.json").write_text(json.dumps(IMAGE))
        (place / "site.toml").write_text(TOML + f'[keys]\nfolder = "{folder / "keys" / name}"\n')
        sites[name] = SiteFile.load(place / "site.toml").site()

    def handled(name):
        def answer(payload):
            sent.append(read(payload))
            return sites[name].handle(payload)

        return answer

    wanted = Request(
        recipe="pp_fedgan", transport="he", rounds=2, seed=3, epsilon=50.0, delta=1e-3, arguments=LITTLE,
        accept=("delta",),
    )  # fmt: skip
    asked = {
        "run": "r1", "request": wanted.to_toml(), "schema": Schema.from_dict(IMAGE).to_dict(), "minimum_sites": 2,
        "round_s": 300.0,
    }  # fmt: skip
    channel = QueueChannel({name: handled(name) for name in NAMES})
    out = folder / "runs" / "r1"
    ServerJob().conduct(asked, channel, out, lambda *_, **__: None, threading.Event())
    return folder, out, [message for message in sent if isinstance(message, Work)]


def test_sites_are_sent_what_was_filled_in_beside_the_sealed_average(finished):
    _, _, work = finished
    later = [one for one in work if one.job == "round" and one.version]
    names = {"ids", "sealed", "parts/prior", "parts/levels"}
    assert len(later) == 3 and all(set(one.tensors) == names for one in later)


def test_the_key_holder_opens_a_generator_that_draws(finished, tmp_path):
    folder, out, work = finished
    secret = folder / "keys" / "bern" / keys.SECRET
    with pytest.raises(SystemExit) as stopped:
        main(["keys", "open", str(out), "--key", str(secret)])
    assert not stopped.value.code
    held = load_file(out / "generator.safetensors")
    assert {name.partition(".")[0] for name in held if name != "balance"} == {"prior", "levels", "generator"}
    first = next(one for one in work if one.job == "round" and one.version)
    filled = np.sort(np.concatenate([held[name].flatten() for name in held if name.startswith("prior.")]))
    assert np.array_equal(filled, np.sort(first.tensors["parts/prior"].numpy()))
    with pytest.raises(SystemExit) as stopped:
        main(["sample", str(out), "--rows", "4", "--out", str(tmp_path / "made.npz")])
    assert not stopped.value.code
    assert np.load(tmp_path / "made.npz")["images"].shape[:3] == (4, 8, 8)


def test_every_site_pays_for_its_answer_and_its_steps(finished):
    folder, out, _ = finished
    told = json.loads((out / "privacy.json").read_text())
    assert (told["unit"], told["trust"]) == ("record", "local") and told[
        "simulation"
    ]  # sites are seeded here
    for name in NAMES:
        ledger = (folder / name / "state" / "ledger.jsonl").read_text()
        assert "class moments" in ledger and "record gradients, round 2" in ledger
