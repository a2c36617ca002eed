"""One schedule of a lying server in both worlds, and all that must hold after it, whatever was said."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from lying_server import LyingServer
from masking_liar import MaskingLiar
from observer import distances, epsilon_of, ledger_epsilon, ledger_lines
from small_world import DELTA, HOME, NAMES, VICTIM, composed, terms_for

import fedsynth.privacy.ledger as ledger
from fedsynth.deploy.link.messages import Message, Refuse, Result, Terms
from fedsynth.privacy.budget import Budget
from fedsynth.privacy.events import flatten

MEMORY_DISK = Path("/dev/shm") if Path("/dev/shm").is_dir() else None  # each write is synced
CLOSE = 1 + 1e-6  # numbers that two programs computed


@dataclass(frozen=True)
class Kind:
    """A family of schedules: who plays, what the terms are, and by what the two worlds differ."""

    trust: str
    moves: int
    honest: tuple[str, ...] = (HOME,)
    helpers: tuple[str, ...] = ()
    values: dict[str, object] = field(default_factory=dict)
    replaced: bool = False  # the victim's row is replaced, not removed

    @property
    def sampled(self) -> bool:
        """Whether the ledger counts on a server that draws clients by chance, which this one does not."""
        return bool(self.values.get("rate", 1.0) != 1.0)

    @property
    def terms(self) -> Terms:
        """What the sites are asked to agree to."""
        sites = len(NAMES) if self.trust != "distributed" else len(self.honest) + len(self.helpers)
        return terms_for(self.trust, sites, **self.values)


KINDS = {
    "clear sums": Kind("central", 8),
    "clear sums of sampled clients": Kind("central", 8, values={"rate": 0.5}),
    "local noise": Kind("local", 8),
    "local noise, a row replaced": Kind("local", 8, replaced=True),
    "masked sums of two sites": Kind("distributed", 5, ("ada", "bern")),
    "masked sums of three sites, two in a sum": Kind("distributed", 4, NAMES, values={"threshold": 6}),
    "masked sums with a participant that helps": Kind("distributed", 5, ("ada",), ("bern",)),
    "masked sums of three, one helps": Kind("distributed", 4, ("ada", "bern"), ("cern",)),
}


@lru_cache(maxsize=64)
def planned(kind: str) -> float:
    """What the whole run costs by the site's own objects, for an unsampled plan."""
    algorithm = composed(KINDS[kind].terms)
    events = [charge.event for charge in algorithm.charges()] * algorithm.rounds
    events += [charge.event for charge in algorithm.opening.charges()]
    leaves = [leaf for event in events for leaf, _ in flatten(event)]
    if any(not hasattr(leaf, "noise_multiplier") for leaf in leaves):
        return 12.0  # sampled: less than the same noise without sampling
    return epsilon_of([1 / leaf.noise_multiplier for leaf in leaves], DELTA)


def played(tape, name: str, seed: int) -> Counter[str]:
    """Play one schedule and check what must hold; how often what happened in it."""
    kind = KINDS[name]
    budget = (1.001 * planned(name), 1.7 * planned(name), 1000.0)[seed % 3]
    agreed = (1.001 * planned(name), 50.0)[seed // 3 % 2]
    return attacked(tape, kind, lambda server: server.play(kind.moves), budget, agreed, seed, name)


def attacked(
    tape,
    kind: Kind,
    attack: Callable[[LyingServer], object],
    budget: float = 1000.0,
    agreed: float = 50.0,
    seed: int = 0,
    name: str = "scripted",
) -> Counter[str]:
    """Let a server attack in both worlds, with the same random bytes, and check what must hold afterwards."""
    folder, servers = Path(tempfile.mkdtemp(dir=MEMORY_DISK)), []
    server_of = MaskingLiar if kind.trust == "distributed" else LyingServer
    terms, policy = replace(kind.terms, epsilon=agreed), Budget(budget, DELTA)
    try:
        for world, victim in (("with", 1.0), ("without", -1.0 if kind.replaced else None)):
            tape.rewind(f"{name} {seed}")
            server = server_of(seed, terms, folder / world, victim, policy, kind.honest, kind.helpers)
            servers.append(server)
            attack(server)
        return _checked(kind, servers, policy)
    except Exception as error:
        raise AssertionError(
            f"schedule {name!r}, seed {seed}: {error}\nits lies: {servers[0].lies}"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def schedules(tape, name: str, seeds: Iterable[int]) -> Counter[str]:
    """Play and check these schedules; what happened in them, counted."""
    return sum((played(tape, name, seed) for seed in seeds), Counter())


def _checked(kind: Kind, servers: Sequence[LyingServer], budget: Budget) -> Counter[str]:
    """What must hold after every schedule; raises with the numbers if it does not."""
    one, other = servers
    assert [_public(answer) for answer in one.answers] == [_public(answer) for answer in other.answers], (
        "something else than a sum depends on one client's rows"
    )
    lines = ledger_lines(one.folder / HOME)
    moved = [] if kind.sampled else _distances(kind, one, other)
    truth = epsilon_of([far for _, far in moved], DELTA)
    holder = f"client {HOME}-{VICTIM}"
    stated = ledger_epsilon(lines, holder, DELTA, stretch=2.0 if kind.trust == "local" else 1.0)
    assert truth <= stated * CLOSE, (
        f"epsilon of the bytes is at least {truth:.4g}, the ledger says {stated:.4g}"
    )
    assert truth <= budget.epsilon * CLOSE, (
        f"epsilon {truth:.4g} of the bytes, over the budget {budget.epsilon:.4g}"
    )
    assert stated <= budget.epsilon * CLOSE, (
        f"the ledger's {stated:.4g} is over the budget {budget.epsilon:.4g}"
    )
    for run in one.runs.values():
        own = [line for line in lines if line["run"] == run.name]
        spent = ledger_epsilon(own, holder, DELTA, stretch=2.0 if kind.trust == "local" else 1.0)
        assert spent <= run.epsilon * CLOSE, (
            f"{run.name}: the ledger's {spent:.4g} for agreed {run.epsilon:.4g}"
        )
        true = epsilon_of([far for name, far in moved if name == run.name], DELTA)
        assert true <= run.epsilon * CLOSE, (
            f"{run.name}: {true:.4g} of the bytes for agreed {run.epsilon:.4g}"
        )
        results = {
            answer.name for answer in one.answers if isinstance(answer, Result) and answer.run == run.name
        }
        mine = [line for line in own if line["holder"] in ("server", holder) and line["count"]]
        most = run.rounds + 1 + len(results)
        assert len(mine) <= most, (
            f"{run.name}: {len(mine)} lines for {run.rounds} rounds and {len(results)} results"
        )
    return Counter(
        ["schedule", *("sum" for _ in one.sums), *(answer.kind for answer in one.answers)]
        + [answer.code for answer in one.answers if isinstance(answer, Refuse)]
    )


def _distances(kind: Kind, one: LyingServer, other: LyingServer) -> list[tuple[str, float]]:
    if not kind.replaced:
        return distances(one.sums, other.sums)
    middle = [replace(a, values=(a.values + b.values) / 2) for a, b in zip(one.sums, other.sums, strict=True)]
    halves = distances(one.sums, middle)  # the contributions are opposite: what is in the middle is noise
    return [(run, 2 * far) for run, far in halves]


def _public(answer: Message) -> object:
    """An answer without what may depend on rows: the numbers of a sum, and names made of them."""
    if isinstance(answer, Result):
        shapes = {name: (value.dtype, tuple(value.shape)) for name, value in answer.tensors.items()}
        return answer.run, answer.version, shapes, len(answer.blob), answer.tensors["ids"].tolist()
    hidden = {"answers": "", "blob": b""}
    public = {name: hidden.get(name, value) for name, value in vars(answer).items()}
    if "ledger" in public:  # the number of lines; their hash holds the time at which they were written
        public["ledger"] = public["ledger"].partition(":")[0]
    if "proof" in public:
        public["proof"] = bool(public["proof"])
    return answer.kind, public, len(getattr(answer, "blob", b""))


@contextmanager
def remembered_epsilons() -> Iterator[None]:
    """The accountant's answers, each computed once: thousands of schedules ask it for the same few compositions."""
    computed, answers = ledger.answer, {}

    def remembered(event, delta, **more):
        leaves = sorted((repr(leaf), count) for leaf, count in flatten(event))
        name = repr((leaves, delta, sorted(more.items())))
        if name not in answers:
            answers[name] = computed(event, delta, **more)
        return answers[name]

    ledger.answer = remembered
    try:
        yield
    finally:
        ledger.answer = computed
