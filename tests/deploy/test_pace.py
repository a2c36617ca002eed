"""Rounds end at the ticks of a public pace, whatever they took; no test here sleeps."""

from fedsynth.federation.pace import Pace, Stoppage, last_step


class Clock:
    """Time that passes only when somebody works or sleeps."""

    def __init__(self):
        self.time = 100.0

    def now(self):
        return self.time

    def sleep(self, seconds):
        assert seconds >= 0
        self.time += seconds


def ends(lengths, *, step_s=1.0, sites=("a", "b"), leaving=None):
    """When rounds of these lengths end for everybody else, and their public lengths."""
    clock, here = Clock(), list(sites)
    pace = Pace(step_s, lambda: here, clock.now, clock.sleep)
    pace.start()
    times, told = [], []
    for number, length in enumerate(lengths):
        clock.time += length
        if number == leaving:
            here.pop()
        pace.wait()
        times.append(clock.time - 100.0)
        told.append(pace.seconds)
    return times, told


def test_rounds_of_any_length_within_a_tick_end_at_the_same_times():
    assert ends([0.1, 0.2, 0.9]) == ends([0.9, 0.01, 0.3]) == ([1.0, 2.0, 3.0], [1.0] * 3)


def test_a_round_that_overruns_doubles_the_pace_for_good():
    times, told = ends([0.1, 0.1, 2.5, 0.1, 0.1])
    assert told == [1.0, 1.0, 4.0, 4.0, 4.0] and times == [1.0, 2.0, 6.0, 10.0, 14.0]


def test_the_first_round_warms_up_and_sets_no_pace():
    assert ends([5.0, 0.1, 0.1])[1] == [8.0, 1.0, 1.0]


def test_a_site_that_is_waited_for_in_vain_changes_no_later_round():
    times, told = ends([0.1, 60.5, 0.1], leaving=1)
    assert told == [1.0, 61.0, 1.0] and times == [1.0, 62.0, 63.0]


def test_a_paused_machine_moves_the_ticks_and_sets_no_pace():
    """The server stood still for 40 s in the second round: the third is as long as the first."""
    clock = Clock()
    stoppage = Stoppage(clock.now)

    def work(seconds):
        for _ in range(seconds):
            clock.time += 1.0
            stoppage.look()

    pace = Pace(4.0, now=clock.now, sleep=lambda seconds: work(round(seconds)), stopped=stoppage.taken)
    pace.start()
    ends = []
    for paused in (0.0, 40.0, 0.0):
        work(2)
        clock.time += paused
        work(1)
        pace.wait()
        ends.append((clock.time - 100.0, pace.seconds))
    assert ends == [(4.0, 4.0), (48.0, 4.0), (52.0, 4.0)]


def test_a_look_that_is_a_little_late_is_no_stoppage():
    clock = Clock()
    stoppage = Stoppage(clock.now)
    for late in (1.0, 5.5, 1.0):
        clock.time += late
        stoppage.look()
    assert stoppage.taken() == 0.0
    clock.time += 31.0
    assert stoppage.taken() == 30.0 and stoppage.taken() == 0.0


def test_an_interpreter_that_computes_for_long_is_not_a_stoppage():
    """How long a sum takes may depend on who was drawn, so it doubles the pace like any other overrun."""
    clock, processor = Clock(), Clock()
    stoppage = Stoppage(clock.now, processor.now)
    for busy, counted in ((30.0, 0.0), (3.0, 0.0), (1.0, 30.0)):
        clock.time += 31.0
        processor.time += busy
        assert stoppage.taken() == counted


def test_the_times_of_a_run_take_few_values_whatever_its_rounds_took():
    """Thousand rounds from a millisecond to five minutes: eleven lengths at most, each doubling once."""
    lengths = [0.001 * (1 + (17 * number * number) % 300_000) for number in range(1000)]
    _, told = ends(lengths, step_s=0.25)
    assert len(set(told[1:])) <= 12 and told[1:] == sorted(told[1:])


def test_a_run_that_is_gone_on_with_keeps_its_pace():
    steady = [{"seconds": 8.0}, {"seconds": 2.0}, {"seconds": 2.0}]
    assert last_step(steady) == last_step([*steady, {"seconds": 602.0}]) == 2.0
    assert last_step([]) == 0.25
