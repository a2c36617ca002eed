"""What a site with a buffer believes of its server: nothing about turns, separation, or who was charged."""

import torch
from toy_buffers import ALGORITHMS, site_at
from toy_federation import CLIENTS, SEED

from fedsynth.deploy.link.messages import Begin, Done, Refuse, Result, Work, read, write
from fedsynth.deploy.link.order import broadcast_of
from fedsynth.federation.algorithm import Home
from fedsynth.rng import Rng


class Server:
    """Asks the site ada, client 0 of which is number 0, for whatever it likes."""

    def __init__(self, folder, trust, seed=None):
        self.terms, self.algorithm = ALGORITHMS[trust]
        self.state = self.algorithm.init(Rng(SEED).at("init"))
        self.site = site_at(folder, "ada", trust, seed)
        self.session = 0
        self.begin()

    def begin(self):
        self.session += 1
        homes = self.algorithm.homes.items()
        start = {part: self.state.parts[part] for part, home in homes if home is Home.CLIENT}
        begin = Begin("run", self.session, self.terms, 0, len(CLIENTS), start)
        assert isinstance(read(self.site.handle(write(begin))), Done)

    def ask(self, version, *, used=(), since=None, part=0, client=0):
        tensors = {"ids": torch.tensor([client]), **broadcast_of(self.algorithm, self.state)}
        since = version if since is None else since
        work = Work("run", self.session, "round", version, part, 3, since, tuple(used), tensors)
        return read(self.site.handle(write(work)))

    def lines(self):
        return [line for line in self.site.ledger.lines() if ", round " in line.what]


def test_naming_a_result_as_used_does_not_make_a_second_one_of_the_same_version_free(tmp_path):
    """Else a server could average the noise of a client away and its ledger would show one release."""
    server = Server(tmp_path, "local")
    first = server.ask(0)
    assert isinstance(first, Result) and len(server.lines()) == 1
    for part in (0, 7):
        again = server.ask(0, used=[first.name], part=part)
        assert isinstance(again, Refuse) and again.code == "stale"
    assert len(server.lines()) == 1
    assert isinstance(server.ask(1), Result) and len(server.lines()) == 2


def test_the_same_question_has_the_same_answer_and_costs_nothing_more(tmp_path):
    server = Server(tmp_path, "local")
    first = server.ask(0)
    server.begin()  # the server was started again
    again = server.ask(0)
    assert again.name == first.name and torch.equal(again.tensors["messages"], first.tensors["messages"])
    assert len(server.lines()) == 1


def test_noise_at_the_server_makes_a_repeated_question_one_more_use(tmp_path):
    server = Server(tmp_path, "central")
    first = server.ask(0)
    assert server.ask(0).name == first.name and len(server.lines()) == 1
    server.begin()
    assert isinstance(server.ask(0), Result) and len(server.lines()) == 2


def test_a_client_that_had_its_turns_by_the_site_s_own_books_is_refused_and_nobody_else(tmp_path):
    server = Server(tmp_path, "local")
    turns = server.algorithm.schedule.turns
    for version in range(turns):
        assert isinstance(server.ask(version), Result)  # the last one is never used, and counts all the same
    refused = server.ask(turns)
    assert isinstance(refused, Refuse) and refused.code == "turns" and not refused.final
    assert f"the {turns} turns" in refused.reason
    assert isinstance(server.ask(turns, client=1, part=1), Result)
    assert len(server.lines()) == turns + 1


def test_a_client_works_again_only_so_many_versions_after_it_was_used(tmp_path):
    server = Server(tmp_path, "banded")
    assert server.algorithm.schedule.separation == 2
    first = server.ask(0)
    soon = server.ask(1, used=[first.name])
    assert isinstance(soon, Refuse) and soon.code == "stale" and "too soon" in soon.reason
    assert isinstance(server.ask(2), Result)


def test_what_the_site_knows_outlives_its_process(tmp_path):
    server = Server(tmp_path, "banded")
    first = server.ask(0)
    server.ask(1, used=[first.name])
    server.site = site_at(tmp_path, "ada", "banded", None)
    assert server.ask(1).code == "stale" and server.ask(0).code == "stale"
    assert isinstance(server.ask(2), Result)


def test_a_client_is_not_asked_for_two_versions_at_once(tmp_path):
    server = Server(tmp_path, "local")
    server.ask(0)
    both = server.ask(1, since=0)
    assert isinstance(both, Refuse) and "still work for another" in both.reason
