"""The server's end: silent, slow, refusing, lying and returning sites."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from three_sites import make_sites, queue_of, terms_for

from fedsynth.deploy.link.messages import Refuse, Result, Work, read, write
from fedsynth.deploy.link.order import check_messages, once_for_all
from fedsynth.deploy.link.patience import Patience, Superseded, TooFewSites
from fedsynth.deploy.link.remote import Remote
from fedsynth.deploy.link.roster import Member, Roster
from fedsynth.deploy.participation import compose
from fedsynth.federation.loop import gather, learn_balance, run
from fedsynth.federation.schedule import Everyone
from fedsynth.privacy.signds import SignDS
from fedsynth.research.queue_channel import QueueChannel
from fedsynth.rng import Rng

VALUES = {"latent": 2, "hidden": (4,), "rounds": 6, "rate": 1.0, "noise_multiplier": 1.0, "batch_size": 4}


class Unruly(QueueChannel):
    """Sites in one process behind a simulated clock; `spoil` may change or lose (None) what a site answers."""

    def __init__(self, sites):
        super().__init__({name: site.handle for name, site in sites.items()})
        self.time = 0.0
        self.silent = set()
        self.spoil = lambda site, message, answer: answer

    def now(self):
        return self.time

    def receive(self, timeout_s):
        while self._queue:
            site, payload = self._queue.popleft()
            if site in self.silent:
                continue
            answer = self.spoil(site, read(payload), self._handles[site](payload))
            if answer is not None:
                return site, answer
        self.time += timeout_s
        return None


@pytest.fixture
def setting(schema, ten, tmp_path):
    terms = terms_for("dpd_fvae", schema, VALUES)
    channel = Unruly(make_sites(ten["table"], schema, tmp_path))
    news = []
    remote = Remote(
        channel, "run", minimum=2, patience=Patience(10.0, 4.0, 0.0), now=channel.now,
        tell=lambda *line: news.append(line),
    )  # fmt: skip
    algorithm = compose(terms, schema)
    return channel, remote, terms, algorithm, news


def begun(remote, terms, algorithm):
    remote.invite(terms)
    state = algorithm.init(Rng(1).at("init"))
    remote.begin(terms, algorithm, state)
    return state


def trained(remote, algorithm, state, rounds=4, seen=lambda *_: None):
    lines = []

    def noted(state, done):
        lines.append(done)
        seen(state, done)

    run(algorithm, remote, state, Rng(1), lambda *_: None, noted, rounds)
    return lines


def test_a_silent_site_is_dropped_after_the_stated_time_not_waited_for_again_and_may_rejoin(setting):
    channel, remote, terms, algorithm, news = setting
    state = begun(remote, terms, algorithm)
    times = []

    def seen(state, done):
        times.append(channel.time)
        if done.version == 1:
            channel.silent = {"bern"}
        if done.version == 3:
            channel.silent = set()

    lines = trained(remote, algorithm, state, 6, seen)
    assert [line.dropped for line in lines] == [0, 3, 3, 3, 0, 0]
    assert [line.clients for line in lines] == [10, 7, 7, 7, 10, 10]
    assert np.diff([0.0, *times]).tolist() == [
        0.0,
        10.0,
        0.0,
        0.0,
        0.0,
        0.0,
    ]  # round 4 asks, round 5 has it again
    assert ("bern", 1, "silent for 10 s") in news and ("bern", -1, "is back") in news


def test_the_sum_is_exact_over_those_who_arrived_and_the_denominator_stays(setting, ten):
    channel, remote, terms, algorithm, _ = setting
    state = begun(remote, terms, algorithm)
    channel.silent = {"ada"}
    heard = gather(algorithm, Everyone(10), algorithm.transport, remote, state, Rng(1))
    rows = []
    for client in range(3, 10):
        memory = {name: value[None] for name, value in algorithm.blank(state).items()}
        ids = np.array([client])
        streams = Rng(1).at("client", "Algorithm", 0)
        rows.append(algorithm.client_round(state, memory, ten["table"].gather(ids), ids, streams)[0])
    assert (heard.clients, heard.dropped) == (7, 3)
    torch.testing.assert_close(heard.total, torch.cat(rows).double().sum(0), rtol=0, atol=1e-5)
    assert heard.ids.tolist() == list(range(10))  # all that were asked may have sent something
    assert algorithm.schedule.denominator() == 10


def test_below_the_minimum_it_stops_with_a_sentence(setting):
    channel, remote, terms, algorithm, _ = setting
    state = begun(remote, terms, algorithm)
    channel.silent = {"ada", "cern"}
    with pytest.raises(
        TooFewSites, match="1 sites take part .bern., at least 2 must; start the others again"
    ):
        trained(remote, algorithm, state)


def test_too_few_that_accept_are_named_with_their_reasons(setting):
    channel, remote, terms, algorithm, _ = setting
    channel.silent = {"ada"}
    channel.spoil = lambda site, message, answer: (
        write(Refuse("run", read(answer).answers, "policy", "no, never")) if site == "bern" else answer
    )
    with pytest.raises(TooFewSites, match="continue with --resume; bern refuses: no, never") as told:
        remote.invite(terms)
    assert told.value.resumable  # when ada comes back, there are enough


def test_where_too_many_refuse_for_good_nobody_is_told_to_resume(setting):
    channel, remote, terms, _, _ = setting
    channel.spoil = lambda site, message, answer: (
        write(Refuse("run", read(answer).answers, "policy", "no, never")) if site != "cern" else answer
    )
    with pytest.raises(TooFewSites, match="let them change their site.toml, and begin a new run") as told:
        remote.invite(terms)
    assert not told.value.resumable and "--resume" not in str(told.value)


def test_it_is_said_who_is_waited_for_long_before_they_are_given_up(setting):
    channel, remote, terms, algorithm, news = setting
    remote.patience = Patience(10.0, 4.0, 0.0, slow_s=3.0)
    state = begun(remote, terms, algorithm)
    channel.silent = {"bern"}
    trained(remote, algorithm, state, 1)
    said = [what for site, _, what in news if site == "bern"]
    assert said == ["has not answered for 3 s; it is left out after 10 s", "silent for 10 s"]


def test_a_site_that_refuses_the_plan_is_named_so_that_the_run_can_be_calibrated_without_it(setting):
    channel, remote, terms, algorithm, _ = setting
    channel.spoil = lambda site, message, answer: (
        write(Refuse("run", read(answer).answers, "budget", "too much")) if (site, message.kind) == ("ada", "begin")
        else answer
    )  # fmt: skip
    remote.invite(terms)
    assert remote.begin(terms, algorithm, algorithm.init(Rng(1))) == ("ada",)
    remote.without(("ada",))
    assert remote.roster.clients == 7 and remote.roster.members["bern"].first == 0


def test_a_refused_round_goes_on_without_the_site_and_it_is_asked_again(setting):
    channel, remote, terms, algorithm, news = setting
    state = begun(remote, terms, algorithm)

    def full(site, message, answer):
        if site == "cern" and isinstance(message, Work) and message.version == 1:
            return write(Refuse("run", read(answer).answers if hasattr(read(answer), "answers") else answers(message),
                                "disk", "the disk is full"))  # fmt: skip
        return answer

    from fedsynth.deploy.link.codec import fingerprint

    def answers(message):
        return fingerprint(write(message))

    channel.spoil = full
    assert [line.dropped for line in trained(remote, algorithm, state)] == [0, 4, 0, 0]
    assert channel.time == 0 and remote.refusals["cern"].reason == "the disk is full"


def spoilt(change):
    def spoil(site, message, answer):
        if site != "bern" or not isinstance(message, Work) or message.version != 1:
            return answer
        return change(answer)

    return spoil


def altered(**changes):
    def change(answer):
        result = read(answer)
        return write(replace(result, tensors={**result.tensors, **changes}))

    return change


def not_a_number(answer):
    result = read(answer)
    raw = result.tensors["messages"].numpy().tobytes()
    bad = np.full_like(result.tensors["messages"].numpy(), np.nan).tobytes()
    return answer.replace(raw, bad)


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: b"",
        lambda answer: answer[:-1],
        lambda answer: answer + b"x",
        not_a_number,
        altered(messages=torch.zeros(1, 5, dtype=torch.float64)),
        altered(messages=torch.zeros(2, 5, dtype=torch.float64)),
        altered(messages=torch.zeros(1, 5, dtype=torch.int64)),
        altered(ids=torch.tensor([0, 1])),  # another site's clients
        altered(ids=torch.tensor([5, 4])),
        altered(extra=torch.tensor([1])),
        lambda answer: answer + bytes(10**6),
    ],
    ids=lambda change: change.__name__,
)
def test_a_site_that_sends_what_cannot_be_used_is_left_out_and_the_others_go_on(setting, change):
    channel, remote, terms, algorithm, news = setting
    remote.patience = replace(remote.patience, most_bytes=500_000)
    state = begun(remote, terms, algorithm)
    channel.spoil = spoilt(change)
    assert [line.dropped for line in trained(remote, algorithm, state)] == [0, 3, 0, 0]
    assert any(site == "bern" and "cannot be used" in what for site, _, what in news) and channel.time == 0


def test_results_that_come_twice_or_late_are_used_once(setting):
    channel, remote, terms, algorithm, _ = setting
    state = begun(remote, terms, algorithm)
    kept = []

    def doubled(site, message, answer):
        if isinstance(message, Work):
            kept.append((site, answer))
            for old in kept[-5:]:  # earlier results once more, before the next message is handled
                remote._take(*old) if old != (site, answer) else None
        return answer

    channel.spoil = doubled
    plain = [line.clients for line in trained(remote, algorithm, state)]
    assert plain == [10, 10, 10, 10]


def test_a_lost_message_is_sent_again_before_the_time_is_up(setting):
    channel, remote, terms, algorithm, _ = setting
    state = begun(remote, terms, algorithm)
    lost = set()

    def lossy(site, message, answer):
        if isinstance(message, Work) and (site, message.version) not in lost:
            lost.add((site, message.version))
            return None
        return answer

    channel.spoil = lossy
    assert [line.dropped for line in trained(remote, algorithm, state)] == [0, 0, 0, 0]
    assert channel.time == pytest.approx(16.0)  # one wait of 4 s a round


def test_a_server_that_was_replaced_stops(setting):
    channel, remote, terms, algorithm, _ = setting
    state = begun(remote, terms, algorithm)
    other = Remote(channel, "run", patience=remote.patience, now=channel.now)
    begun(other, terms, algorithm)
    with pytest.raises(Superseded, match="another one conducts the run"):
        trained(remote, algorithm, state)


def test_a_run_resumed_by_another_process_gives_the_same_bits(schema, ten, tmp_path):
    """Stopped after each round and taken up again, with one site that sleeps through a restart."""
    terms = terms_for("dpd_fvae", schema, VALUES)
    algorithm = compose(terms, schema)
    finals = []
    for case, stops in (("whole", False), ("stopped", True)):
        channel = Unruly(make_sites(ten["table"], schema, tmp_path / case))
        saved = {}
        state = algorithm.init(Rng(1).at("init"))
        for target in (1, 2, 3, 4) if stops else (4,):
            remote = Remote(channel, "run", patience=Patience(10.0, 4.0), now=channel.now)
            if saved:
                remote.restore(saved["index"])
                state = saved["state"]
            remote.invite(terms)
            remote.begin(terms, algorithm, state)
            state = learn_balance(algorithm, remote, state, Rng(1), lambda *_: None)

            def seen(state, done, remote=remote, saved=saved):
                saved.update(state=state, index=remote.index())

            state = run(algorithm, remote, state, Rng(1), lambda *_: None, seen, target)
        finals.append(state)
    assert all(torch.equal(finals[0].parts[part], finals[1].parts[part]) for part in finals[0].parts)


def test_the_roster_survives_the_checkpoint():
    member = Member("st-mary", 5, 2, True, ("abc", "def"), out=True)
    found = Roster.from_tensors(Roster({"st-mary": member}, 7).to_tensors())
    assert found.session == 7 and found.members["st-mary"] == replace(member, away=True)
    assert found.present == ()


def test_signed_indices_outside_the_vector_are_refused(build):
    algorithm = replace(build("dpd_fvae", private=False), mechanism=SignDS(2.0, top=3))
    check_messages(algorithm, torch.tensor([[4], [-7]]), 2)
    for bad in ([[0], [1]], [[1], [10**9]], [[1]], [[1.0], [2.0]]):
        with pytest.raises(ValueError, match="signed-index of"):
            check_messages(algorithm, torch.tensor(bad), 2)
    assert once_for_all(algorithm) and not once_for_all(build("dpd_fvae"))


def test_status_of_a_queue_without_questions_is_nothing():
    assert QueueChannel({}).receive(1.0) is None and queue_of({}).sites == []
    assert Result("r", "o", "n", 0).version == 0
