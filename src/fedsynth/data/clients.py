"""Who owns which rows: raw as read, then encoded, sorted by owner and gathered a cohort at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedsynth.data.conform import conform
from fedsynth.data.encode import ImageEncoding, TableEncoding
from fedsynth.data.partition import by_column
from fedsynth.data.partition import split as split_rows
from fedsynth.data.schema import Schema
from fedsynth.data.text import TextEncoding
from fedsynth.errors import BadInput, nearest
from fedsynth.rng import Rng

_MOVED = 256  # columns of encoded rows that are put in order at once


@dataclass(frozen=True)
class RawClients:
    """Rows as read and the client that owns each: a table (`frame`), `images` with `labels`, or pieces of `texts`."""

    owner: np.ndarray  # [rows] int64, 0..count-1
    count: int
    names: tuple[str, ...]
    frame: pd.DataFrame | None = None
    images: np.ndarray | None = None
    labels: np.ndarray | None = None
    client_column: str | None = None
    texts: tuple[str, ...] | None = None
    dealt: str | None = (
        None  # the split by which simulated clients got their rows; None where rows have owners
    )

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

    def only(self, chosen: np.ndarray) -> RawClients:
        """The rows for which `chosen` [rows] is true, and the clients that own any of them."""
        left, owner = np.unique(self.owner[chosen], return_inverse=True)
        return replace(
            self,
            owner=owner.astype(np.int64),
            count=len(left),
            names=tuple(self.names[client] for client in left) if self.names else (),
            frame=None if self.frame is None else self.frame[chosen].reset_index(drop=True),
            images=None if self.images is None else self.images[chosen],
            labels=None if self.labels is None else self.labels[chosen],
            texts=None if self.texts is None else tuple(np.array(self.texts, dtype=object)[chosen]),
        )


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

    The client column is taken out of the table: it is never synthesised. `label` is needed by the splits
    `dirichlet:ALPHA` and `label`.

    >>> visits = pd.DataFrame({"patient id": [7, 7, 9], "age": [30, 31, 60]})
    >>> clients_from(visits, client_column="patient id").sizes
    array([2, 1])
    """
    _one_of(client_column, clients)
    if client_column is not None:
        _require(frame, client_column, "client column")
        owner, names = by_column(frame[client_column])
        rest = frame.drop(columns=client_column)
        return RawClients(owner, len(names), names, frame=rest, client_column=client_column)
    assert clients is not None
    if label is not None:
        _require(frame, label, "label")
    labels = None if label is None else frame[label]
    features = _features(frame, label) if split.startswith("kmeans") else None
    owner = split_rows(split, clients, rows=len(frame), labels=labels, features=features, rng=rng or Rng())
    return RawClients(owner, clients, _numbered(clients), frame=frame, dealt=split)


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
    _one_of(owners, clients)
    for what, values in (("labels", labels), ("owners", owners)):
        if values is not None and len(values) != len(images):
            raise BadInput(f"{len(values)} {what} for {len(images)} images; expected one for each image")
    if owners is not None:
        owner, names = by_column(owners)
        return RawClients(owner, len(names), names, images=images, labels=labels)
    assert clients is not None
    features = images.reshape(len(images), -1) if split.startswith("kmeans") else None
    owner = split_rows(split, clients, rows=len(images), labels=labels, features=features, rng=rng or Rng())
    return RawClients(owner, clients, _numbered(clients), images=images, labels=labels, dealt=split)


def text_clients_from(
    texts: Sequence[str],
    schema: Schema,
    *,
    owners: Sequence[str] | np.ndarray | None = None,
    clients: int | None = None,
    rng: Rng | None = None,
) -> RawClients:
    """Clients of texts, cut into the pieces that the schema's vocabulary and length make: by owner, or dealt."""
    _one_of(owners, clients)
    encoding = TextEncoding(schema)
    cut = [tuple(piece for piece in encoding.pieces(text) if piece) for text in texts]
    if owners is not None:
        owner, names = by_column(owners)
    else:
        assert clients is not None
        owner, names = split_rows("uniform", clients, rows=len(texts), rng=rng or Rng()), _numbered(clients)
    owner = np.repeat(owner, [len(pieces) for pieces in cut])
    pieces = tuple(piece for pieces in cut for piece in pieces)
    return RawClients(owner, len(names), names, texts=pieces, dealt="uniform" if owners is None else None)


@dataclass(frozen=True)
class Padded:
    """A cohort's rows, padded to its longest client; padding is zero and False in the mask."""

    x: Tensor  # [clients, rows, ...] float32
    y: Tensor  # [clients, rows] int64
    mask: Tensor  # [clients, rows] bool


@dataclass(frozen=True)
class Clients:
    """Encoded rows sorted by owner: client k holds rows offsets[k] to offsets[k+1].

    >>> x = torch.tensor([[1.0], [2.0], [3.0]])
    >>> clients = Clients(x, torch.tensor([0, 1, 0]), np.array([0, 2, 2, 3]))
    >>> len(clients), clients.sizes.tolist()
    (3, [2, 0, 1])
    >>> clients.gather([0, 2]).x[..., 0]
    tensor([[1., 2.],
            [3., 0.]])
    """

    x: Tensor  # [rows, ...] float32, or uint8 for images
    y: Tensor  # [rows] int64
    offsets: np.ndarray  # [clients + 1] int64

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
        chosen = np.asarray(ids, dtype=np.int64)
        starts = self.offsets[chosen]
        sizes = self.offsets[chosen + 1] - starts
        along = np.arange(max(1, int(sizes.max(initial=1))))
        inside = along < sizes[:, None]
        row = torch.from_numpy(np.where(inside, starts[:, None] + along, 0)).to(self.x.device)
        mask = torch.from_numpy(inside).to(device)
        x, y = self._take(row)
        x = x.to(device, torch.float32)
        if self.x.dtype == torch.uint8:
            x /= 255
        x *= mask.reshape(*mask.shape, *[1] * (x.dim() - 2))  # padding must not carry another client's row
        return Padded(x, y.to(device) * mask, mask)

    def pooled(self) -> Clients:
        """One client that holds all rows."""
        return Clients(self.x, self.y, np.array([0, self.rows], dtype=np.int64))

    def fingerprint(self) -> str:
        """A hash of all rows and their owners, to tell whether the data are still the same. As private as they are."""
        digest = hashlib.sha256(self.offsets.tobytes())
        for rows in (self.x, self.y):
            digest.update(np.ascontiguousarray(rows.cpu().numpy()).tobytes())
        return digest.hexdigest()

    def to(self, device: torch.device | str) -> Clients:
        """The same rows kept on another device, so that gathering does not copy across each round."""
        return Clients(self.x.to(device), self.y.to(device), self.offsets)

    def _take(self, row: Tensor) -> tuple[Tensor, Tensor]:
        if self.rows:
            return self.x[row], self.y[row]
        empty = torch.zeros(*row.shape, *self.x.shape[1:], dtype=self.x.dtype, device=self.x.device)
        return empty, torch.zeros_like(row)


def encode_clients(raw: RawClients, schema: Schema) -> Clients:
    """Encode all rows by the schema and sort them by owner."""
    x, y = _encode(raw, schema)
    order = np.argsort(raw.owner, kind="stable")
    offsets = np.zeros(raw.count + 1, dtype=np.int64)
    np.cumsum(raw.sizes, out=offsets[1:])
    taken = torch.from_numpy(order)
    if x.dim() > 2:
        return Clients(x[taken], y[taken], offsets)
    for start in range(0, x.shape[1], _MOVED):  # in place: a second copy of a wide table may not fit
        part = slice(start, start + _MOVED)
        x[:, part] = x[taken, part]
    return Clients(x, y[taken], offsets)


def require_several(clients: Clients | RawClients) -> None:
    """Refuse data that cannot be a federation: fewer than two clients, or no rows."""
    if len(clients) < 2:
        raise BadInput(
            f"clients={len(clients)}: a federation needs at least two; use the recipe 'central_vae' for one"
        )
    if not clients.rows:
        raise BadInput("rows=0: the clients hold no rows; expected at least one")


def _encode(raw: RawClients, schema: Schema) -> tuple[Tensor, Tensor]:
    if raw.images is not None:
        return ImageEncoding(schema).encode(raw.images, raw.labels)
    if raw.texts is not None:
        return TextEncoding(schema).encode(raw.texts), torch.zeros(len(raw.texts), dtype=torch.int64)
    if raw.frame is None:
        raise BadInput("these clients hold neither a table nor images nor texts; make them with clients_from")
    name = raw.client_column
    if name is not None and any(column.name == name for column in schema.columns) and schema.client != name:
        advice = f'write "client": "{name}" in the schema'
        raise BadInput(f"column {name!r} names the client, so it cannot be synthesised; {advice}")
    return TableEncoding(schema).encode(conform(raw.frame, schema))


def _one_of(column: object, clients: int | None) -> None:
    if (column is None) == (clients is None):
        complaint = "both were given" if column is not None else "neither was given"
        raise BadInput(f"a client column or a number of clients is needed, {complaint}; choose one of them")


def _require(frame: pd.DataFrame, name: str, role: str) -> None:
    present = [str(column) for column in frame.columns]
    if present.count(name) != 1:
        complaint = "is there twice" if name in present else "is not in the table"
        raise BadInput(f"{role} {name!r} {complaint}; {nearest(name, present)}")


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))


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
