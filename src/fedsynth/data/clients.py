"""Who owns which rows: raw as read, then encoded, sorted by owner and gathered a cohort at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedsynth.data.encode import CompactRows
from fedsynth.data.modality import Data, Source, modality_of
from fedsynth.data.partition import by_column
from fedsynth.data.partition import split as split_rows
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, nearest
from fedsynth.late import pd
from fedsynth.rng import Rng

if TYPE_CHECKING:
    import torch
    from torch import Tensor


_HASHED = 2**24  # numbers of encoded rows that are whole at once


@dataclass(frozen=True)
class RawClients:
    """Rows as read (a table, a pair of images and labels, or pieces of texts) and the client that owns each."""

    owner: np.ndarray  # [rows] int64, 0..count-1
    count: int
    names: tuple[str, ...]
    data: Data
    client_column: str | None = None
    dealt: str | None = None  # the split that dealt rows to simulated clients; None where rows have owners

    def __len__(self) -> int:
        return self.count

    @property
    def rows(self) -> int:
        """How many rows all clients have together."""
        return len(self.owner)

    @property
    def sizes(self) -> np.ndarray:
        """How many rows each client has."""
        return np.bincount(self.owner, minlength=self.count)

    def only(self, chosen: np.ndarray, schema: Schema) -> RawClients:
        """The rows for which `chosen` [rows] is true, and the clients that own any of them."""
        left, owner = np.unique(self.owner[chosen], return_inverse=True)
        names = tuple(self.names[client] for client in left) if self.names else ()
        kept = modality_of(schema).take(self.data, chosen)
        return replace(self, owner=owner.astype(np.int64), count=len(left), names=names, data=kept)


def clients_of(
    data: Data,
    rows: int,
    owners: Sequence[str] | np.ndarray | pd.Series | None = None,
    clients: int | None = None,
    *,
    split: str = "uniform",
    labels: np.ndarray | pd.Series | None = None,
    features: Callable[[], np.ndarray] | None = None,
    rng: Rng | None = None,
) -> RawClients:
    """Clients of any data: by the name of each row's owner, or dealt to `clients` simulated ones by `split`.

    `features` [rows, numbers] are asked for by the split `kmeans` alone.
    """
    if (owners is None) == (clients is None):
        complaint = "both were given" if owners is not None else "neither was given"
        raise BadInput(f"a client column or a number of clients is needed, {complaint}; choose one of them")
    if clients is None:
        owner, names = by_column(owners)
        return RawClients(owner, len(names), names, data)
    compared = features() if features and split.startswith("kmeans") else None
    owner = split_rows(split, clients, rows=rows, labels=labels, features=compared, rng=rng or Rng())
    return RawClients(owner, clients, tuple(map(str, range(clients))), data, dealt=split)


def clients_from(
    frame: pd.DataFrame,
    *,
    client_column: str | None = None,
    clients: int | None = None,
    split: str = "uniform",
    label: str | None = None,
    rng: Rng | None = None,
) -> RawClients:
    """Clients of a table: by a column that names the owner, or dealt to `clients` simulated ones by `split`.

    The client column is taken out of the table: it is never synthesized. `label` is needed by the splits
    `dirichlet:ALPHA` and `label`.

    >>> visits = pd.DataFrame({"patient id": [7, 7, 9], "age": [30, 31, 60]})
    >>> clients_from(visits, client_column="patient id").sizes
    array([2, 1])
    """
    if client_column is not None:
        _require(frame, client_column, "client column")
        owners, rest = frame[client_column], frame.drop(columns=client_column)
        return replace(
            clients_of(rest, len(rest), owners=owners, clients=clients), client_column=client_column
        )
    if label is not None:
        _require(frame, label, "label")
    labels = None if label is None else frame[label]
    features = partial(_features, frame, label)
    return clients_of(
        frame, len(frame), clients=clients, split=split, labels=labels, features=features, rng=rng
    )


def image_clients_from(
    images: np.ndarray,
    labels: np.ndarray | None = None,
    *,
    owners: Sequence[str] | np.ndarray | None = None,
    clients: int | None = None,
    split: str = "uniform",
    rng: Rng | None = None,
) -> RawClients:
    """Clients of images: by the name of each image's owner, or dealt to `clients` simulated ones."""
    for what, values in (("labels", labels), ("owners", owners)):
        if values is not None and len(values) != len(images):
            raise BadInput(f"{len(values)} {what} for {len(images)} images; expected one for each image")
    pixels, data = partial(images.reshape, len(images), -1), (images, labels)
    return clients_of(
        data, len(images), owners, clients, split=split, labels=labels, features=pixels, rng=rng
    )


def together(sites: Sequence[RawClients], schema: Schema) -> RawClients:
    """The clients of several sites as one set; equal names at two sites are two clients."""
    starts = np.cumsum([0, *(site.count for site in sites)])
    owner = np.concatenate([site.owner + start for site, start in zip(sites, starts[:-1], strict=True)])
    names = tuple(f"site {number}: {name}" for number, site in enumerate(sites, 1) for name in site.names)
    data = modality_of(schema).join([site.data for site in sites])
    return replace(sites[0], owner=owner, count=int(starts[-1]), names=names, data=data)


def clients_in(data: Data, source: Source, schema: Schema) -> RawClients:
    """The clients of a path or of data in memory, owned as the source says.

    A list has one entry for each site. Without an owner's column a site is one client, as in a federation.
    """
    if isinstance(data, RawClients):
        return data
    if not isinstance(data, list) or (schema.vocabulary and all(isinstance(one, str) for one in data)):
        return _owned(data, source, schema)
    if not data or source.clients is not None or schema.tables:
        reason = (
            "linked tables"
            if schema.tables
            else "clients= deals out the rows of one table, and"
            if data
            else "it"
        )
        raise BadInput(f"data: {reason} cannot be a list with an entry for each site; pass one table")
    alone = replace(source, alone=source.client_column is None)
    return together([_owned(site, alone, schema) for site in data], schema)


def _owned(data: Data, source: Source, schema: Schema) -> RawClients:
    modality = modality_of(schema)
    if isinstance(data, str | Path):
        return modality.clients(replace(source, path=data))
    if isinstance(data, np.ndarray):
        data = (data, None)
    fits = isinstance(data, list | pd.DataFrame) if schema.vocabulary else modality.fits(data)
    if not fits:
        raise BadInput(
            f"data: got an object of type {type(data).__name__} for {modality.describe()}; expected "
            f"{modality.expected}, the path of a file, a list with one of these for each site, or what clients_from "
            "returns"
        )
    return modality.owned(data, source)


@dataclass(frozen=True)
class Padded:
    """A cohort's rows, padded to its longest client; padding is zero and False in the mask."""

    x: Tensor  # [clients, rows, ...] float32
    y: Tensor  # [clients, rows] int64
    mask: Tensor  # [clients, rows] bool


@dataclass(frozen=True)
class Clients:
    """Encoded rows sorted by owner: client k holds rows offsets[k] to offsets[k+1].

    >>> import torch
    >>> x = torch.tensor([[1.0], [2.0], [3.0]])
    >>> clients = Clients(x, torch.tensor([0, 1, 0]), np.array([0, 2, 2, 3]))
    >>> len(clients), clients.sizes.tolist()
    (3, [2, 0, 1])
    >>> clients.gather([0, 2]).x[..., 0]
    tensor([[1., 2.],
            [3., 0.]])
    """

    encoded: Tensor | CompactRows  # [rows, ...] float32, or uint8 for images
    y: Tensor  # [rows] int64
    offsets: np.ndarray  # [clients + 1] int64
    client_column: str | None = None
    dealt: str | None = None  # as of `RawClients`

    @property
    def x(self) -> Tensor:
        """All encoded rows, whole: large where a table has many columns."""
        return self.encoded[:]

    @property
    def width(self) -> int:
        """How many numbers an encoded row has."""
        return self.encoded[:0].shape[1:].numel()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def rows(self) -> int:
        """How many rows all clients have together."""
        return len(self.y)

    @property
    def sizes(self) -> np.ndarray:
        """How many rows each client has."""
        return np.diff(self.offsets)

    def gather(self, ids: Sequence[int] | np.ndarray, device: torch.device | str = "cpu") -> Padded:
        """These clients' rows side by side; the cost grows with the cohort, not with all clients."""
        import torch

        chosen = np.asarray(ids, dtype=np.int64)
        starts = self.offsets[chosen]
        sizes = self.offsets[chosen + 1] - starts
        along = np.arange(max(1, int(sizes.max(initial=1))))
        inside = along < sizes[:, None]
        row = torch.from_numpy(np.where(inside, starts[:, None] + along, 0)).to(self.y.device)
        mask = torch.from_numpy(inside).to(device)
        x, y = self._take(row)
        scaled = x.dtype == torch.uint8
        x = x.to(device, torch.float32)
        if scaled:
            x /= 255
        x *= mask.reshape(*mask.shape, *[1] * (x.dim() - 2))  # padding must not carry another client's row
        return Padded(x, y.to(device) * mask, mask)

    def pooled(self) -> Clients:
        """One client that holds all rows."""
        return replace(self, offsets=np.array([0, self.rows], dtype=np.int64))

    def blank(self) -> Clients:
        """As many rows at each client, and nothing in them: for a rehearsal."""
        import torch

        row = self.encoded[:0].new_zeros(1, *self.encoded[:0].shape[1:])
        return replace(self, encoded=row.expand(self.rows, *row.shape[1:]), y=torch.zeros_like(self.y))

    def fingerprint(self) -> str:
        """A hash of all rows and their owners, to tell whether the data are still the same. As private as they are."""
        digest = hashlib.sha256(self.offsets.tobytes())
        at_once = max(1, _HASHED // max(1, self.width))
        for start in range(0, self.rows, at_once):
            digest.update(self.encoded[start : start + at_once].contiguous().cpu().numpy().data)
        digest.update(self.y.contiguous().cpu().numpy().data)
        return digest.hexdigest()

    def to(self, device: torch.device | str) -> Clients:
        """The same rows kept on another device, so that gathering does not copy across each round."""
        return replace(self, encoded=self.encoded.to(device), y=self.y.to(device))

    def _take(self, row: Tensor) -> tuple[Tensor, Tensor]:
        import torch

        if self.rows:
            return self.encoded[row], self.y[row]
        none = self.encoded[:0]
        return none.new_zeros(*row.shape, *none.shape[1:]), torch.zeros_like(row)


def encode_clients(raw: RawClients, schema: Schema) -> Clients:
    """Encode all rows by the schema and sort them by owner."""
    import torch

    name, modality = raw.client_column, modality_of(schema)
    if name is not None and any(column.name == name for column in schema.columns) and schema.client != name:
        advice = f'write "client": "{name}" in the schema'
        raise BadInput(f"column {name!r} names the client, so it cannot be synthesized; {advice}")
    if not modality.fits(raw.data):
        raise BadInput(
            f"the data are a {type(raw.data).__name__}, the schema is of kind {schema.kind!r}; expected "
            f"{modality.expected}"
        )
    x, y = modality.compact(modality.conform(raw.data))
    order = np.argsort(raw.owner, kind="stable")
    offsets = np.zeros(raw.count + 1, dtype=np.int64)
    np.cumsum(raw.sizes, out=offsets[1:])
    taken = torch.from_numpy(order)
    rows = x.ordered(taken) if isinstance(x, CompactRows) else x[taken]
    return Clients(rows, y[taken], offsets, name, raw.dealt)


def require_several(clients: Clients | RawClients) -> None:
    """Refuse data that cannot be a federation: fewer than two clients, or no rows."""
    if len(clients) < 2:
        raise BadInput(
            f"clients={len(clients)}: a federation needs at least two; use the recipe 'central_vae' for one"
        )
    if not clients.rows:
        raise BadInput("rows=0: the clients hold no rows; expected at least one")


def _require(frame: pd.DataFrame, name: str, role: str) -> None:
    present = [str(column) for column in frame.columns]
    if present.count(name) != 1:
        complaint = "is there twice" if name in present else "is not in the table"
        raise BadInput(f"{role} {name!r} {complaint}; {nearest(name, present)}")


def _is_number(series: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(series)


def _features(frame: pd.DataFrame, label: str | None) -> np.ndarray:
    """Standardised numbers for k-means, for simulated splits only: it looks at all clients' rows at once."""
    kept = [
        name for name in frame if name != label and (_is_number(frame[name]) or frame[name].nunique() <= 100)
    ]
    wide = pd.get_dummies(frame[kept], dtype=float).astype(float)
    spread = wide.std(ddof=0).replace(0, 1).fillna(1)
    return ((wide - wide.mean()) / spread).fillna(0.0).to_numpy()
