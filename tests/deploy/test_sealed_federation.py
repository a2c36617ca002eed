"""A federation over sealed sums: sites with the secret key, a server without, a key-holder who opens the generator."""

import json
import threading

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from fedsynth.cli.main import main
from fedsynth.data.clients import RawClients, encode_clients
from fedsynth.data.schema import Schema
from fedsynth.deploy.job import JobEnded
from fedsynth.deploy.link.codec import BadMessage
from fedsynth.deploy.link.messages import Begin, Result, Work, read
from fedsynth.deploy.link.sealed import SealingSite
from fedsynth.deploy.participation import compose
from fedsynth.deploy.server_job import ServerJob
from fedsynth.deploy.site.run import Refusal
from fedsynth.deploy.site.site_file import SiteFile
from fedsynth.errors import BadInput, FedsynthError
from fedsynth.federation.loop import learn_balance, run
from fedsynth.research.queue_channel import QueueChannel
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.synthesis.request import Request
from fedsynth.transport import keys
from fedsynth.transport.he_scheme import Keys
from he_secret import secret_words

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
client_column = "patient"
[budget]
epsilon = 100.0
delta = 1e-3
[policy]
recipes = ["fvae"]
transports = ["he"]
minimum_cohort = 2
without_privacy = true
[state]
folder = "state"
[test]
seed = 3
"""
PATIENTS = 4  # a site


def rows_of(name: str) -> pd.DataFrame:
    draw = np.random.default_rng(len(name))
    owners = [f"{name}-{row // 5}" for row in range(5 * PATIENTS)]
    age = draw.integers(20, 80, len(owners))
    return pd.DataFrame({"patient": owners, "age": age, "ill": draw.choice(["no", "yes"], len(owners))})


class World:
    """Three sites in this process with keys in folders of their own, and all that crossed the channel."""

    def __init__(self, folder, clients=3 * PATIENTS):
        self.folder, self.seen, self.left = folder, [], 10**9
        keys.create(folder / "keys", sites=NAMES, clients=clients)
        for name in NAMES:
            place = folder / name
            place.mkdir()
            rows_of(name).to_csv(place / "rows.csv", index=False)
            (place / "schema.json").write_text(json.dumps(SCHEMA))
            (place / "site.toml").write_text(TOML + f'[keys]\nfolder = "{folder / "keys" / name}"\n')

    @property
    def secret(self) -> Keys:
        return keys.load_keys(self.folder / "keys" / "ada" / keys.SECRET)

    def channel(self) -> QueueChannel:
        sites = {name: SiteFile.load(self.folder / name / "site.toml").site() for name in NAMES}

        def handled(name):
            def answer(payload):
                self.left -= 1
                if self.left < 0:
                    raise JobEnded
                reply = sites[name].handle(payload)
                self.seen += [(name, read(payload)), (name, read(reply))]
                return reply

            return answer

        return QueueChannel({name: handled(name) for name in NAMES})

    def conduct(self, **changes):
        arguments = {"hidden": (8,), "latent": 2, "momentum": 0.0, "rate": 1.0}
        wanted = {
            "private": False,
            "rounds": 3,
            "seed": 3,
            "transport": "he",
            "arguments": arguments,
            **changes,
        }
        asked = {
            "run": "r1",
            "request": Request(**{"recipe": "fvae", **wanted}).to_toml(),
            "schema": Schema.from_dict(SCHEMA).to_dict(),
            "minimum_sites": 2,
            "round_s": 300.0,
        }
        out = self.folder / "runs" / "r1"
        ServerJob().conduct(asked, self.channel(), out, lambda *_, **__: None, threading.Event())
        return out

    def messages(self, kind):
        return [message for _, message in self.seen if isinstance(message, kind)]

    def simulated(self):
        """The same run in the simulator, with the sites' key."""
        begin = next(message for message in self.messages(Begin) if isinstance(message, Begin))
        schema = Schema.from_dict(SCHEMA)
        algorithm, rng = compose(begin.terms, schema, self.secret), Rng(3)
        frame = pd.concat([rows_of(name) for name in NAMES], ignore_index=True)
        owner = pd.factorize(frame["patient"])[0].astype(np.int64)
        raw = RawClients(owner, owner.max() + 1, (), data=frame.drop(columns="patient"))
        link = InProcess(encode_clients(raw, schema), rng)
        state = learn_balance(algorithm, link, algorithm.init(rng.at("init")), rng, lambda *_: None)
        return run(algorithm, link, state, rng, lambda *_: None, lambda *_: None, 3)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("sealed"))
    return world, world.conduct()


def command(*words) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(word) for word in words])
    return int(stopped.value.code or 0)


def test_a_key_holder_opens_what_the_simulator_computes(finished, tmp_path):
    world, out = finished
    made = tmp_path / "generator.safetensors"
    secret = world.folder / "keys" / "bern" / keys.SECRET
    assert command("keys", "open", out, "--key", secret, "--out", made) == 0
    expected = world.simulated().parts["decoder"]
    found = torch.cat([value.flatten() for name, value in load_file(made).items() if name != "balance"])
    assert len(found) == len(expected)
    torch.testing.assert_close(found.sort().values, expected.sort().values, rtol=0, atol=1e-6)
    assert float((expected - expected.mean()).abs().max()) > 0.01


def test_rows_are_drawn_once_the_run_is_open_and_not_before(finished, tmp_path, capsys):
    world, out = finished
    if not (out / "generator.safetensors").exists():
        assert command("sample", out, "--rows", 5, "--out", tmp_path / "rows.csv") == 2
        assert "fedsynth keys open" in capsys.readouterr().err
        assert command("keys", "open", out, "--key", world.folder / "keys" / "ada" / keys.SECRET) == 0
    assert command("sample", out, "--rows", 5, "--out", tmp_path / "rows.csv") == 0
    assert len(pd.read_csv(tmp_path / "rows.csv")) == 5


def test_nothing_that_the_server_is_sent_or_keeps_is_in_the_clear_or_a_secret(finished):
    world, out = finished
    results = [message for message in world.messages(Result) if message.blob]
    assert len(results) == 9 and all(set(message.tensors) == {"ids"} for message in results)
    later = [work for work in world.messages(Work) if work.job == "round" and work.version]
    assert len(later) == 6 and all("sealed" in work.tensors for work in later)
    assert not any(name.startswith("parts/") for work in later for name in work.tensors)
    whole = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    for text in (world.secret.secret, secret_words(world.secret)):
        assert text[256:288] not in whole


def test_the_statement_says_what_one_colluding_client_can_do(finished):
    _, out = finished
    told = json.loads((out / "privacy.json").read_text())
    assert any("any one client that helps the server" in caveat for caveat in told["caveats"])


def test_a_job_that_ends_in_the_middle_is_continued_from_the_sealed_state(tmp_path, finished):
    world = World(tmp_path)
    world.left = 22
    with pytest.raises(JobEnded):
        world.conduct()
    state = tmp_path / "runs" / "r1" / "state"
    assert "memory/sealed" in load_file(state / "checkpoint.safetensors")
    world.left = 10**9
    out = world.conduct()
    secret = world.folder / "keys" / "cern" / keys.SECRET
    assert command("keys", "open", out, "--key", secret) == 0
    assert len((out / "history.jsonl").read_text().splitlines()) == 3


def test_another_key_opens_nothing(finished, tmp_path, capsys):
    _, out = finished
    keys.create(tmp_path / "others", sites=NAMES, clients=12)
    stranger = tmp_path / "others" / "ada" / keys.SECRET
    assert command("keys", "open", out, "--key", stranger, "--out", tmp_path / "g") == 2
    assert "was sealed with the key" in capsys.readouterr().err
    assert command("keys", "open", tmp_path, "--key", stranger, "--out", tmp_path / "g") == 2
    assert "expected a folder that `fedsynth run` made" in capsys.readouterr().err


def test_sites_with_different_keys_are_told_apart_by_name(tmp_path):
    world = World(tmp_path)
    keys.create(tmp_path / "others", sites=NAMES, clients=12)
    file = tmp_path / "bern" / "site.toml"
    file.write_text(file.read_text().replace(str(tmp_path / "keys"), str(tmp_path / "others")))
    with pytest.raises(FedsynthError, match="seal with different keys .*bern"):
        world.conduct()


def test_local_noise_is_paid_for_by_every_client(tmp_path):
    world = World(tmp_path)
    out = world.conduct(private=True, trust="local", epsilon=50.0, delta=1e-3, accept=("delta",))
    told = json.loads((out / "privacy.json").read_text())
    assert told["trust"] == "local" and told["simulation"]  # the sites of this test are seeded
    ledger = (tmp_path / "ada" / "state" / "ledger.jsonl").read_text()
    assert all(f"client ada-{number}" in ledger for number in range(PATIENTS))


def test_records_protected_at_their_own_site_go_over_sealed_sums_and_nobody_declares_their_number(tmp_path):
    world = World(tmp_path)
    for name in NAMES:
        file = tmp_path / name / "site.toml"
        text = file.read_text().replace('recipes = ["fvae"]', 'recipes = ["fvae_record"]')
        file.write_text(text.replace("delta = 1e-3", 'delta = 1e-3\nunit = "record"'))
    small = {"hidden": (8,), "latent": 2, "momentum": 0.0}
    out = world.conduct(
        recipe="fvae_record", private=True, epsilon=50.0, delta=1e-4, rounds=1, arguments=small
    )
    told = json.loads((out / "privacy.json").read_text())
    assert (told["unit"], told["trust"]) == ("record", "local")
    assert command("keys", "open", out, "--key", world.folder / "keys" / "ada" / keys.SECRET) == 0


def half(world):
    begin = next(message for message in world.messages(Begin))
    return SealingSite(compose(begin.terms, Schema.from_dict(SCHEMA), world.secret), minimum=3)


def test_a_site_opens_no_average_over_too_few(finished):
    world, _ = finished
    site = half(world)
    alone = site.seal(0, torch.zeros(1, site.algorithm.wire.dim, dtype=torch.float64), 2)
    with pytest.raises(Refusal, match="over 2 clients; this site opens those over 3"):
        site.unseal(alone)
    enough = site.seal(0, torch.zeros(1, site.algorithm.wire.dim, dtype=torch.float64), 3)
    assert all(not part.any() for part in site.unseal(enough).values())


def test_a_site_is_asked_for_its_public_key_alone(finished):
    world, _ = finished
    site = half(world)
    told = site.stage(0, "key", b"")
    for text in (world.secret.secret, secret_words(world.secret)):
        assert text[256:288] not in told
    with pytest.raises(BadInput, match="key only"):
        site.stage(0, "reveal", b"")


@pytest.mark.parametrize("sealed", [b"", b"garbage" * 40])
def test_a_site_refuses_what_is_no_sealed_average(finished, sealed):
    world, _ = finished
    with pytest.raises((BadInput, BadMessage)):
        half(world).unseal(sealed)
