"""Finished streams are forgotten by one thread, in time, and no sooner; what was sent is freed at once."""

import gc
import threading
import time

import pytest
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.stream_cell import StreamCell
from nvflare.fuel.f3.streaming.byte_receiver import RxTask
from nvflare.fuel.f3.streaming.byte_streamer import TxTask
from real_sites import free_port, until

from fedsynth.deploy.nvflare.executor import SiteExchange
from fedsynth.deploy.nvflare.streams import Appointments

STREAMS = 200


def remembered() -> int:
    """How many of these tests' streams are not forgotten; the process may have others, of an engine that works."""
    return sum(("server", number) in RxTask.rx_task_map for number in range(STREAMS))


@pytest.fixture
def streams(monkeypatch):
    """Answers of the engine that came whole, in a process that has our executor."""
    monkeypatch.setattr(RxTask, "_schedule_remove_task", RxTask._schedule_remove_task)  # to be put back
    monkeypatch.setattr(TxTask, "send_loop", TxTask.send_loop)
    SiteExchange()

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
    assert remembered() == STREAMS, "a sender that repeats itself still gets its answer"


def test_streams_are_forgotten_when_their_time_is_over(streams):
    streams(0.2)
    until("no stream is left", lambda: not remembered(), patience_s=20, every_s=0.05)


def test_appointments_are_met_in_the_order_of_their_times_and_cancelled_ones_never():
    appointments, met, last = Appointments(), [], threading.Event()
    appointments.add(0.3, last.set)
    appointments.add(0.2, lambda: met.append("late"))
    appointments.add(0.15, lambda: met.append("never")).cancel()
    appointments.add(0.1, lambda: met.append("early"))
    began = time.monotonic()
    assert last.wait(20) and time.monotonic() - began > 0.25
    assert met == ["early", "late"] and len(appointments) == 0


def test_what_was_sent_is_freed_before_python_looks_for_cycles_and_arrives_whole(streams):
    url = f"tcp://127.0.0.1:{free_port()}"
    cells = [CoreCell(name, url, secure=False, credentials={}) for name in ("server", "ada")]
    for cell in cells:
        cell.start()
    server, ada = map(StreamCell, cells)
    sent, arrived = [bytes([number]) * (number * 700_000 + 10) for number in range(5)], []
    server.register_blob_cb("work", "answer", lambda future: arrived.append(bytes(future.result())))
    gc.disable()
    try:
        for blob in sent:
            ada.send_blob("work", "answer", "server", Message(None, blob)).result(60)
        until("all that was sent", lambda: len(arrived) == len(sent), patience_s=60)
        tasks = [one for one in gc.get_objects() if isinstance(one, TxTask)]
        assert not any(one.buffer or one.direct_buf or one.stream for one in tasks)
    finally:
        gc.enable()
        for cell in reversed(cells):
            cell.stop()
    assert sorted(arrived, key=len) == sent
