"""How a contender is started and answers: a case on the command line, one line of JSON on standard output."""

from __future__ import annotations

import argparse
import json

import torch
from cases import CASES, Case


def arguments() -> tuple[Case, argparse.Namespace]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--chunk", type=int, default=0, help="clients in a stack; 0: as fedsynth chooses")
    parser.add_argument("--clients", type=int, default=0, help="so many clients instead of the case's")
    parser.add_argument("--check", action="store_true", help="also compare results with the plain model")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    return CASES[options.case], options


def reply(seconds: list[float], processor: list[float], clients: int, **more: object) -> None:
    """The fastest round: what other processes on the machine do can only make a round slower.

    Seconds of the processor a round are given beside those of the clock: a busy machine lengthens them less.
    """
    best, own = min(seconds), sorted(processor)
    answer = {"clients": clients, "rounds": len(seconds), "seconds": best, "updates_per_s": clients / best}
    answer["processor_s"] = [own[0], own[len(own) // 2], own[-1]]
    print(json.dumps({**answer, **more}))
