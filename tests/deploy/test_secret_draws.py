"""Where nobody but the server may know who was drawn: an absence or a refusal does not show it either."""

import pytest
from test_remote import VALUES, Unruly, begun
from three_sites import make_sites, terms_for

from fedsynth.deploy.link.codec import fingerprint
from fedsynth.deploy.link.messages import Refuse, Work, write
from fedsynth.deploy.link.patience import Patience
from fedsynth.deploy.link.remote import Remote
from fedsynth.deploy.participation import compose
from fedsynth.federation.algorithm import secret_draw
from fedsynth.federation.loop import run
from fedsynth.rng import Rng

SEEDS = range(6)


class Outside:
    """What others than the server see of a run in which clients are drawn at a small rate."""

    def __init__(self, folder, clients, schema, seed, *, silent_after=None, refusing=None):
        values = {**VALUES, "rate": 0.15, "rounds": 6}
        terms = terms_for("dpd_fvae", schema, values)
        channel = Unruly(make_sites(clients, schema, folder))
        self.news, self.own, self.times, self.sites, self.cohorts = [], [], [], [], []
        remote = Remote(
            channel, "run", patience=Patience(10.0, 4.0, 0.0), now=channel.now,
            tell=lambda *line: self.news.append(line), whisper=lambda *line: self.own.append(line),
        )  # fmt: skip

        def noted(site, message, answer):
            if not isinstance(message, Work):
                return answer
            self.sites.append((message.version, message.sites))
            if site != refusing:
                return answer
            return write(Refuse(message.run, fingerprint(write(message)), "disk", "its disk is full"))

        def seen(state, done):
            self.times.append(channel.time)
            self.cohorts.append(done.clients + done.dropped)
            if done.version == silent_after:
                channel.silent = {"bern"}

        algorithm = compose(terms, schema)
        assert secret_draw(algorithm)
        state = begun(remote, terms, algorithm)
        channel.spoil = noted
        run(algorithm, remote, state, Rng(seed), lambda *_: None, seen, 6)


def outsiders(folder, clients, schema, **more):
    runs = [Outside(folder / str(seed), clients, schema, seed, **more) for seed in SEEDS]
    assert len({tuple(one.cohorts) for one in runs}) > 1  # they differ in who was drawn
    return runs


def test_a_silent_site_is_noticed_in_the_next_round_whoever_was_drawn(schema, ten, tmp_path):
    for one in outsiders(tmp_path, ten["table"], schema, silent_after=2):
        assert one.news == [("bern", 2, "silent for 10 s")]
        assert one.times == [0.0, 0.0, 10.0, 10.0, 10.0, 10.0]
        assert all(sites == (3 if version < 2 else 2) for version, sites in one.sites)


def test_a_site_that_refuses_work_does_not_show_that_it_was_drawn(schema, ten, tmp_path):
    runs = outsiders(tmp_path, ten["table"], schema, refusing="bern")
    assert all(one.news == [] for one in runs)
    assert any(one.own for one in runs)  # the server writes it down for itself
    assert all(what == "refuses: its disk is full" for one in runs for _, _, what in one.own)


@pytest.mark.parametrize(("rate", "secret"), [(0.5, True), (1.0, False)])
def test_only_an_amplified_cost_needs_secrecy(schema, rate, secret):
    assert secret_draw(compose(terms_for("dpd_fvae", schema, {**VALUES, "rate": rate}), schema)) == secret
