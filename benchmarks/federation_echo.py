"""A job without training: the server sends each site a state of so many parameters and gets as many back."""

from __future__ import annotations

import json
import os
import time

import psutil


class Sender:
    """The server's part: rounds of bytes, timed."""

    def conduct(self, asked, channel, folder, tell, regroup):
        folder.mkdir(parents=True, exist_ok=True)
        payload = os.urandom(4 * asked["parameters"])
        tell(state="training")
        for number in range(1, asked["rounds"] + 1):
            began = time.perf_counter()
            for site in channel.sites:
                channel.send(site, payload)
            waiting = set(channel.sites)
            while waiting:
                arrived = channel.receive(60.0)
                if arrived is None:
                    raise RuntimeError(f"no answer from {sorted(waiting)} for a minute")
                site, answer = arrived
                assert len(answer) == len(payload)
                waiting.remove(site)
            line = {"version": number, "seconds": time.perf_counter() - began, "when": time.time()}
            tell(line={**line, "memory": psutil.Process().memory_info().rss})
        (folder / "done.json").write_text(json.dumps({"rounds": asked["rounds"]}))

    def results(self, folder):
        return [folder / "done.json"]


class Echo:
    """A site's part: the same bytes back."""

    def handle(self, payload):
        return payload
