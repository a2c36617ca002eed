"""Follow one row and one update through the code of a real run, and print the files that they pass.

A small seeded run is made twice, with one value of one row changed. A function is a hop of the row if what it takes or
returns differs between the two runs: so the row is really in it, as a value, a gradient, a sum or a sample. Hops are in
the order of their first such call or return; a hop in another folder than the one before is a change of room.

    python tools/follow.py            a summary
    python tools/follow.py --hops     every hop
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import sys
import tempfile
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pandas as pd
import torch

import fedsynth
from fedsynth.cli.main import main as fedsynth_command

SOURCE = Path(fedsynth.__file__).parent
DEPTH = 3  # how deep objects are looked into
ROW = ("read_table", "write_table")  # a row's way: from the file that it is read from to the synthetic file
UPDATE = ("Algorithm.client_round", "Algorithm.server_round")  # an update lives from one to the other
SCHEMA = """{"version": 1, "kind": "table", "label": "sex", "client": "owner", "columns": [
{"name": "age", "type": "integer", "min": 0, "max": 100},
{"name": "sex", "type": "categorical", "categories": ["F", "M"]}]}"""
COMMAND = """run {0}/rows.csv --schema {0}/schema.json --recipe dpd_fvae --client-column owner --epsilon 100
--delta 1e-3 --rounds 1 --set rate=1 --set hidden=4 --seed 1 --quiet --rows 500 --out {0}/RUN"""


@dataclass(frozen=True)
class Hop:
    """A function that the row passes."""

    file: str
    function: str

    @property
    def room(self) -> str:
        """The folder of the file; of a file at the top its own name."""
        return str(Path(self.file).parent) if "/" in self.file else self.file


def content(value: Any, depth: int = DEPTH) -> bytes:
    """Return the data in a value as bytes; empty for what holds none."""
    if isinstance(value, torch.Tensor):
        while torch._C._functorch.is_functorch_wrapped_tensor(value):  # inside vmap and grad
            value = torch._C._functorch.get_unwrapped(value)
        return value.detach().cpu().numpy().tobytes()
    if isinstance(value, np.ndarray):
        return value.tobytes() if value.dtype != object else repr(value.tolist()).encode()
    if isinstance(value, (pd.DataFrame, pd.Series)):
        return value.to_csv().encode()
    if depth == 0:
        return b""
    if isinstance(value, dict):
        return b"".join(content(part, depth - 1) for part in value.values())
    if isinstance(value, (list, tuple)):
        return b"".join(content(part, depth - 1) for part in value[:8])
    if is_dataclass(value) and not isinstance(value, type):
        return b"".join(content(value.__dict__.get(part.name), depth - 1) for part in fields(value))
    return b""


class Trace:
    """Every call of a function of ours and its return, in order, with a digest of the data in it."""

    def __init__(self) -> None:
        self.events: list[tuple[Hop, bytes]] = []
        self._places: dict[CodeType, Hop | None] = {}

    def _place(self, code: CodeType) -> Hop | None:
        if code not in self._places:
            file = Path(code.co_filename)
            ours = file.is_relative_to(SOURCE) and not code.co_name.startswith("<")
            self._places[code] = Hop(str(file.relative_to(SOURCE)), code.co_qualname) if ours else None
        return self._places[code]

    def profile(self, frame: FrameType, event: str, result: Any) -> None:
        """Note a call or a return: for `sys.setprofile`."""
        hop = self._place(frame.f_code) if event in ("call", "return") else None
        if hop is None:
            return
        code = frame.f_code
        if event == "call":
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            data = b"".join(content(frame.f_locals.get(name)) for name in names if name != "self")
        else:
            data = content(result)
        self.events.append((hop, hashlib.sha256(data).digest()))

    def digests(self) -> dict[Hop, list[bytes]]:
        """Return the digests of each function, in the order of its calls."""
        by_hop: dict[Hop, list[bytes]] = {}
        for hop, digest in self.events:
            by_hop.setdefault(hop, []).append(digest)
        return by_hop


def traced(value: int) -> Trace:
    """Trace a run over five clients of one row, one of which has `value` as its age."""
    frame = pd.DataFrame({"age": [20, 30, value, 60, 70], "sex": list("FMFMM"), "owner": range(5)})
    trace = Trace()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        frame.to_csv(Path(folder, "rows.csv"), index=False)
        Path(folder, "schema.json").write_text(SCHEMA)
        sys.setprofile(trace.profile)
        try:
            fedsynth_command(COMMAND.format(folder).split())
        except SystemExit as end:
            assert not end.code, f"the run ended with {end.code}"
        finally:
            sys.setprofile(None)
    return trace


def differing(one: Trace, other: Trace) -> list[Hop]:
    """Return the calls and returns whose data differ between two runs, in their order: the row is in them."""
    others = {hop: iter(digests) for hop, digests in other.digests().items()}
    return [hop for hop, digest in one.events if digest != next(others.get(hop, iter(())), None)]


def between(events: list[Hop], first: str, last: str) -> list[Hop]:
    """Return the functions from the first event of one to the last event of another, each once."""
    names = [hop.function for hop in events]
    return list(dict.fromkeys(events[names.index(first) : len(names) - names[::-1].index(last)]))


def summary(name: str, hops: list[Hop]) -> str:
    """Return hops, files and changes of room in one line."""
    changes = sum(a.room != b.room for a, b in zip(hops, hops[1:], strict=False))
    return (
        f"{name}: {len(hops)} hops through {len({hop.file for hop in hops})} files, {changes} changes of room"
    )


def main() -> None:
    """Print what the row and the update pass."""
    parser = argparse.ArgumentParser(
        description="Follow one row and one update through the code of a real run."
    )
    parser.add_argument("--hops", action="store_true", help="print every hop")
    given = parser.parse_args()
    torch.set_num_threads(1)
    traced(50)  # so that modules are imported and caches are warm
    one, other = traced(25), traced(75)
    events = differing(one, other)
    row, update = (between(events, *way) for way in (ROW, UPDATE))
    for name, hops in (("one row", row), ("one update", update)):
        if given.hops:
            print(*(f"  {hop.file}:{hop.function}" for hop in hops), sep="\n")
        print(summary(name, hops))


if __name__ == "__main__":
    main()
