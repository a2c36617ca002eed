"""Split rows among simulated clients, evenly or as unevenly as the papers do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsynth.errors import BadInput, nearest
from fedsynth.late import pd
from fedsynth.rng import Rng

_EXAMPLES = {"dirichlet": "dirichlet:0.5", "geometric": "geometric:0.99"}  # kinds with a parameter


@dataclass(frozen=True)
class Split:
    """How rows are dealt to clients: the kind, and its parameter where it has one."""

    kind: str
    parameter: float = 0.0

    @property
    def reads_rows(self) -> bool:
        """Whether who gets a row depends on what this row and others hold."""
        return self.kind in ("dirichlet", "label", "kmeans")


def parse_split(text: str) -> Split:
    """Read `uniform`, `rows`, `label`, `kmeans`, `dirichlet:ALPHA` or `geometric:A`.

    >>> parse_split("dirichlet:0.5")
    Split(kind='dirichlet', parameter=0.5)
    """
    kind, colon, written = text.partition(":")
    if kind not in _KINDS:
        raise BadInput(f"split {text!r}: unknown kind {kind!r}, {nearest(kind, _KINDS)}")
    if kind not in _EXAMPLES:
        if colon:
            raise BadInput(f"split {text!r}: {kind!r} takes no parameter; write {kind!r}")
        return Split(kind)
    try:
        parameter = float(written)
    except ValueError:
        raise BadInput(
            f"split {text!r}: expected a number after {kind!r}, for example {_EXAMPLES[kind]!r}"
        ) from None
    if not 0 < parameter < (1 if kind == "geometric" else np.inf):
        expected = "a probability in (0, 1)" if kind == "geometric" else "a concentration above 0"
        raise BadInput(f"split {text!r}: expected {expected}, for example {_EXAMPLES[kind]!r}")
    return Split(kind, parameter)


def split(
    kind: str,
    count: int,
    *,
    rows: int | None = None,
    labels: Any = None,
    features: np.ndarray | None = None,
    rng: Rng,
) -> np.ndarray:
    """The owner of each row, int64 [rows] in 0..count-1; clients may get unequal numbers of rows, or none.

    `rows`: each row is a client of its own. `uniform` deals shuffled rows in turn. `dirichlet:ALPHA` draws each
    label's shares over the clients (small ALPHA: a label sits with few). `label`: a client holds rows of one label
    only. `kmeans`: a client is a cluster of the features. `geometric:A`: client k gets a row with probability
    p(1-p)^(k-1), where p = 1-(1-A)^(1/N) (FedVAE thesis, 4.4.1); the share 1-A that falls beyond the last client
    is drawn again.
    """
    chosen = parse_split(kind)
    if count < 1:
        raise BadInput(f"clients={count}: expected at least one client")
    basis = {"dirichlet": labels, "label": labels, "kmeans": features}.get(chosen.kind, ())
    if basis is None:
        needed = "features" if chosen.kind == "kmeans" else "a label"
        raise BadInput(f"split {kind!r} needs {needed}; give it (--label) or use 'uniform'")
    lengths = [len(each) for each in (labels, features) if each is not None]
    if rows is None and not lengths:
        raise BadInput(f"split {kind!r}: the number of rows is unknown; give rows, labels or features")
    total = lengths[0] if rows is None else rows
    task = _Task(total, count, chosen.parameter, labels, features, rng.at("split", chosen.kind))
    return _KINDS[chosen.kind](task).astype(np.int64)


def by_column(values: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """The owner of each row by a column that names it, and the owners' names in order of first appearance.

    >>> owner, names = by_column(["b", "a", "b"])
    >>> owner.tolist(), names
    ([0, 1, 0], ('b', 'a'))
    """
    try:
        owner, names = pd.factorize(pd.Series(values).to_numpy(dtype=object))
    except TypeError:
        raise BadInput("the client column holds lists or objects; expected names or numbers") from None
    if (owner < 0).any():
        missing = int((owner < 0).sum())
        raise BadInput(
            f"{missing} of {len(owner)} rows have no client; fill the client column or drop these rows"
        )
    return owner.astype(np.int64), tuple(str(name) for name in names)


@dataclass(frozen=True)
class _Task:
    rows: int
    count: int
    parameter: float
    labels: Any
    features: np.ndarray | None
    rng: Rng

    def classes(self) -> tuple[np.ndarray, int]:
        codes, names = pd.factorize(
            pd.Series(self.labels).to_numpy(dtype=object), sort=False, use_na_sentinel=False
        )
        return codes, len(names)


def _uniform(task: _Task) -> np.ndarray:
    return task.rng.numpy().permutation(task.rows) % task.count


def _dirichlet(task: _Task) -> np.ndarray:
    codes, classes = task.classes()
    generator = task.rng.numpy()
    owner = np.zeros(task.rows, dtype=np.int64)
    for label in range(classes):
        shares = generator.dirichlet(np.full(task.count, task.parameter))
        mine = np.flatnonzero(codes == label)
        owner[mine] = generator.choice(task.count, size=len(mine), p=shares / shares.sum())
    return owner


def _label(task: _Task) -> np.ndarray:
    codes, classes = task.classes()
    generator = task.rng.numpy()
    owner = np.zeros(task.rows, dtype=np.int64)
    for label in range(classes):
        # With fewer clients than labels some clients hold several labels, but a label is never spread out.
        holders = (
            np.arange(label, task.count, classes) if label < task.count else np.array([label % task.count])
        )
        mine = np.flatnonzero(codes == label)
        owner[mine] = holders[generator.permutation(len(mine)) % len(holders)]
    return owner


def _kmeans(task: _Task) -> np.ndarray:
    from sklearn.cluster import KMeans  # slow to import, and few runs need it

    assert task.features is not None
    if task.count > task.rows:
        raise BadInput(f"split 'kmeans': {task.count} clients of {task.rows} rows; ask for fewer clients")
    flat = np.asarray(task.features, dtype=np.float32).reshape(task.rows, -1)
    seed = task.rng.integer() % 2**32
    return KMeans(task.count, n_init=1, max_iter=50, random_state=seed).fit_predict(flat)


def _geometric(task: _Task) -> np.ndarray:
    # By inversion, given k <= N: u is uniform on the part of the distribution up to N, whose weight is A.
    decay = (1 - task.parameter) ** (1 / task.count)  # 1 - p
    uniform = task.rng.numpy().random(task.rows) * task.parameter
    return np.minimum(np.floor(np.log1p(-uniform) / np.log(decay)), task.count - 1)


_KINDS: dict[str, Callable[[_Task], np.ndarray]] = {
    "rows": lambda task: np.arange(task.rows),
    "uniform": _uniform,
    "dirichlet": _dirichlet,
    "label": _label,
    "kmeans": _kmeans,
    "geometric": _geometric,
}
