"""Finished streams of the engine are forgotten by one thread, in time, and no sooner."""

import threading
import time

import pytest
from nvflare.fuel.f3.streaming.byte_receiver import RxTask
from real_sites import until

from fedsynth.deploy.nvflare.executor import Exchange
from fedsynth.deploy.nvflare.streams import Appointments

STREAMS = 200


@pytest.fixture
def streams(monkeypatch):
    """Answers of the engine that came whole, in a process that has our executor."""
    monkeypatch.setattr(RxTask, "_schedule_remove_task", RxTask._schedule_remove_task)  # to be put back
    Exchange()

    def finish(seconds: float) -> list[RxTask]:
        tasks = [RxTask(number, "server", None, reliable=True) for number in range(STREAMS)]
        for task in tasks:
            task.completed_task_ttl = seconds
            RxTask.rx_task_map[task.origin, task.sid] = task
            task._schedule_remove_task()
        return tasks

    yield finish
    for number in range(STREAMS):
        RxTask.rx_task_map.pop(("server", number), None)


def test_hundreds_of_finished_streams_need_one_thread(streams):
    before = threading.active_count()
    streams(60.0)
    assert threading.active_count() <= before + 1
    assert len(RxTask.rx_task_map) == STREAMS, "a sender that repeats itself still gets its answer"


def test_streams_are_forgotten_when_their_time_is_over(streams):
    streams(0.2)
    until("no stream is left", lambda: not RxTask.rx_task_map, patience_s=20, every_s=0.05)


def test_appointments_are_met_in_the_order_of_their_times_and_cancelled_ones_never():
    appointments, met, last = Appointments(), [], threading.Event()
    appointments.add(0.3, last.set)
    appointments.add(0.2, lambda: met.append("late"))
    appointments.add(0.15, lambda: met.append("never")).cancel()
    appointments.add(0.1, lambda: met.append("early"))
    began = time.monotonic()
    assert last.wait(20) and time.monotonic() - began > 0.25
    assert met == ["early", "late"] and len(appointments) == 0
