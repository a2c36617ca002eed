"""All that is written in Triton: convolutions of many clients at once, and clipped sums over many records.

A convolution of clients is an implicit matrix product, each client its own slice of it.

A convolution is a form in three arrays: maps x [clients, batch, in, height, width], weights w [clients, out, in,
kernel] and values y [clients, batch, out, positions]. Given two of them, each function here makes the third; so these
three are also each other's gradients, and those of a transposed convolution. No window is ever written to memory.

Which number of one array meets which of another is laid down in tables, once for each shape: an address is a sum of
two entries, and whether it lies inside the map is a bit that two entries share. Computed for each number, addresses
took most of the time.

Sums are in float32. Products are as exact as float32's ("tf32x3": three products of tensor cores) unless torch was
told that matrix products may be in TF32. Triton comes with torch for CUDA; without it `available` is False.
"""
# ruff: noqa: ANN001, ANN202  (what Triton compiles has types of its own)

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # torch for CPUs
    triton = None

Pair = tuple[int, int]
_PROGRAMS = 1024  # that keep all processors of a GPU busy: sums of fewer are cut into pieces
_MOST_TAPS = 31  # bits in an entry of a table
# how a program is cut: with tensor cores, with one channel, and for weights
_TILES = {"COLUMNS": 128, "DEPTH": 32, "num_warps": 4, "num_stages": 2}
_TILES_FEW = {"COLUMNS": 128, "DEPTH": 16, "num_warps": 4, "num_stages": 2}
_TILES_OF_WEIGHTS = {"COLUMNS": 128, "DEPTH": 32, "num_warps": 4, "num_stages": 2}
_FEW = 4  # channels that are too few for a product of matrices


@dataclass(frozen=True)
class Geometry:
    """How a map of `size` is seen through a window that moves over it."""

    size: Pair
    kernel: Pair
    stride: Pair
    padding: Pair

    @property
    def positions(self) -> Pair:
        """How many places the window has, down and across."""
        return self._along(0), self._along(1)

    @property
    def taps(self) -> int:
        """How many places a window sees."""
        return self.kernel[0] * self.kernel[1]

    def _along(self, axis: int) -> int:
        room = self.size[axis] + 2 * self.padding[axis] - self.kernel[axis]
        return room // self.stride[axis] + 1


def available(value: Tensor, geometry: Geometry) -> bool:
    """Whether these kernels can work on the value's device and type."""
    return (
        triton is not None and value.is_cuda and value.dtype == torch.float32 and geometry.taps <= _MOST_TAPS
    )


def values(x: Tensor, w: Tensor, geometry: Geometry) -> Tensor:
    """The convolution y of maps x with weights w."""
    (clients, batch, inputs), outputs = x.shape[:3], w.shape[1]
    tables = _tables_of_values(geometry, inputs, x.device)
    y = x.new_empty(clients, batch, outputs, *geometry.positions)
    return _combined(y, x, w, tables, outputs, inputs * geometry.taps)


def maps(w: Tensor, y: Tensor, geometry: Geometry) -> Tensor:
    """The maps x in which each place sums up what all windows over it hold: y laid out by the weights."""
    (clients, batch, outputs), inputs = y.shape[:3], w.shape[2]
    tables = _tables_of_maps(geometry, inputs, outputs, y.device)
    x = y.new_empty(clients, batch, inputs, *geometry.size)
    return _combined(x, y, w, tables, inputs, geometry.taps)


def weights(x: Tensor, y: Tensor, geometry: Geometry) -> Tensor:
    """The weights w, each the sum over batch and places of what it multiplies in x and y."""
    (clients, batch, inputs), outputs = x.shape[:3], y.shape[2]
    taps, tiling = inputs * geometry.taps, dict(_TILES_OF_WEIGHTS)
    depth = tiling["DEPTH"]
    places = geometry.positions[0] * geometry.positions[1]
    count = batch * places
    rows, columns = _block(outputs, 16, 64), _block(taps, 16, tiling.pop("COLUMNS"))
    tiles = (_pieces(taps, columns), _pieces(outputs, rows))
    pieces = max(1, min(_pieces(_PROGRAMS, clients * tiles[0] * tiles[1]), count // (4 * depth)))
    each = _pieces(_pieces(count, depth), pieces) * depth
    pieces = _pieces(count, each)
    w = x.new_empty(pieces, clients, outputs, inputs, *geometry.kernel)
    tables = _tables_of_values(geometry, inputs, x.device)
    _weights[(clients * tiles[0], tiles[1], pieces)](
        w, x.contiguous(), y.contiguous(), tables.terms, tables.places, clients, batch, outputs, taps, each,
        x[0, 0].numel(), TERMS=tables.terms.shape[2], PLACES=places, ROWS=rows, COLUMNS=columns,
        PRECISION=_precision(), **tiling,
    )  # fmt: skip
    return w.sum(0) if pieces > 1 else w[0]


def can_sum(value: Tensor) -> bool:
    """Whether `squares` and `whole_sums` can work on the value's device and type."""
    return triton is not None and value.is_cuda and value.dtype == torch.float32


def squares(x: Tensor) -> Tensor:
    """The sum of squares of each record [clients, records, size], in float64."""
    result = x.new_empty(x.shape[:2], dtype=torch.float64)
    _squares[(result.numel(),)](x.contiguous(), result, x.shape[2], BLOCK=1024)
    return result


def whole_sums(x: Tensor, factor: Tensor) -> Tensor:
    """The sum over records of x [clients, records, size] times factor [clients, records], each truncated to an integer.

    A record with a factor of zero counts for nothing, whatever it holds. No product may reach 2^31.
    """
    (clients, records, size), block = x.shape, 512
    tiles = _pieces(size, block)
    each = max(8, _pieces(records, _pieces(2 * _PROGRAMS, tiles * clients)))
    pieces = _pieces(records, each)
    result = x.new_empty(pieces, clients, size, dtype=torch.float64)
    _whole_sums[(tiles, clients, pieces)](
        x.contiguous(), factor.contiguous(), result, clients, records, size, each, BLOCK=block
    )
    return result.sum(0) if pieces > 1 else result[0]


@dataclass(frozen=True)
class _Tables:
    """The terms that a sum runs over, for each kind of place, and the place that its result goes to."""

    terms: Tensor  # [kinds, 3, terms]: where in the source and in the weights, and the bit of its tap
    places: (
        Tensor  # [kinds, 3, places]: where in the source and in the result, and the bits of the taps inside
    )


@lru_cache(maxsize=256)
def _tables_of_values(geometry: Geometry, inputs: int, device: torch.device) -> _Tables:
    (height, width), (down, right), (high, left) = geometry.size, geometry.stride, geometry.padding
    taps = list(product(range(geometry.kernel[0]), range(geometry.kernel[1])))
    terms = [
        (channel * height * width + i * width + j, channel * len(taps) + tap, 1 << tap)
        for channel in range(inputs)
        for tap, (i, j) in enumerate(taps)
    ]
    places: list[tuple[int, int, int]] = []
    for p, q in product(*map(range, geometry.positions)):
        h, v = p * down - high, q * right - left
        inside = sum(
            1 << tap for tap, (i, j) in enumerate(taps) if 0 <= h + i < height and 0 <= v + j < width
        )
        places.append((h * width + v, len(places), inside))
    return _Tables(_table([terms], device), _table([places], device))


@lru_cache(maxsize=256)
def _tables_of_maps(geometry: Geometry, inputs: int, outputs: int, device: torch.device) -> _Tables:
    """Places at equal distances modulo the stride are seen through the same taps: a kind for each remainder."""
    (height, width), (down, right), (high, left) = geometry.size, geometry.stride, geometry.padding
    rows, across = geometry.positions
    all_terms, all_places = [], []
    for kind in product(range(down), range(right)):
        taps = list(
            product(range(kind[0], geometry.kernel[0], down), range(kind[1], geometry.kernel[1], right))
        )
        back = [((i - kind[0]) // down, (j - kind[1]) // right) for i, j in taps]
        all_terms.append([
            (
                channel * rows * across - up * across - over,
                channel * inputs * geometry.taps + i * geometry.kernel[1] + j,
                1 << tap,
            )
            for channel in range(outputs)
            for tap, ((i, j), (up, over)) in enumerate(zip(taps, back, strict=True))
        ])  # fmt: skip
        places: list[tuple[int, int, int]] = []
        for h, v in product(range(height), range(width)):
            if ((h + high) % down, (v + left) % right) == kind:
                p, q = (h + high) // down, (v + left) // right
                inside = [0 <= p - up < rows and 0 <= q - over < across for up, over in back]
                places.append(
                    (
                        p * across + q,
                        h * width + v,
                        sum(1 << tap for tap, is_in in enumerate(inside) if is_in),
                    )
                )
        all_places.append(places)
    return _Tables(_table(all_terms, device), _table(all_places, device))


def _table(kinds: list[list[tuple[int, int, int]]], device: torch.device) -> Tensor:
    """[kinds, 3, entries]; filled up with entries that have no bits, and go nowhere."""
    entries = max(1, max(map(len, kinds)))
    table = np.zeros((len(kinds), 3, entries), dtype=np.int32)
    table[:, 1] = -1
    for kind, rows in enumerate(kinds):
        if rows:
            table[kind, :, : len(rows)] = np.array(rows, dtype=np.int32).T
    return torch.from_numpy(table).to(device)


def _combined(
    result: Tensor, source: Tensor, w: Tensor, tables: _Tables, channels: int, apart: int
) -> Tensor:
    """The result, of which each channel is a sum of terms of the source with weights of its own, which lie `apart`."""
    clients, batch = result.shape[:2]
    kinds, _, terms = tables.terms.shape
    places = tables.places.shape[2]
    few = channels <= _FEW
    tiles = _TILES_FEW if few else _TILES
    rows = 1 if few else _block(channels, 16, 64)
    grid = (clients * _pieces(batch * places, tiles["COLUMNS"]), _pieces(channels, rows) * kinds)
    _sums[grid](
        result, source.contiguous(), w.contiguous(), tables.terms, tables.places, batch, channels, apart,
        w[0].numel(), source[0, 0].numel(), result[0, 0].numel(), result[0, 0, 0].numel(),
        KINDS=kinds, TERMS=terms, PLACES=places, ROWS=rows, PRECISION=_precision(), **tiles,
    )  # fmt: skip
    return result


def _pieces(total: int, each: int) -> int:
    return -(-total // each)


def _block(count: int, least: int, most: int) -> int:
    """The side of a tile: a power of two."""
    return min(most, max(least, 1 << (count - 1).bit_length()))


def _precision() -> str:
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"


if triton is not None:

    @triton.jit
    def _sums(  # type: ignore[no-untyped-def]
        result, source, w, terms, places, batch, channels, apart, client_w, image_source, image_result, area,
        KINDS: tl.constexpr, TERMS: tl.constexpr, PLACES: tl.constexpr,
        ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
    ):  # fmt: skip
        """result[channel, place] = sum over terms of w[channel, term] source[place + term], where it lies inside."""
        count = batch * PLACES
        tiles = tl.cdiv(count, COLUMNS)
        client = (tl.program_id(0) // tiles).to(tl.int64)
        n = (tl.program_id(0) % tiles) * COLUMNS + tl.arange(0, COLUMNS)
        kind = tl.program_id(1) % KINDS
        image, place = n // PLACES, n % PLACES
        places += kind * 3 * PLACES + place
        base = image * image_source + tl.load(places)
        goal = tl.load(places + PLACES)
        inside = tl.where(n < count, tl.load(places + 2 * PLACES), 0)
        terms += kind * 3 * TERMS
        source += client * batch * image_source
        w += client * client_w
        result += client * batch * image_result
        first = (tl.program_id(1) // KINDS) * ROWS
        goes = (n < count) & (goal >= 0)
        if ROWS == 1:
            product = tl.zeros((DEPTH, COLUMNS), dtype=tl.float32)
            for start in range(0, TERMS, DEPTH):
                k = start + tl.arange(0, DEPTH)
                step = tl.load(terms + k, mask=k < TERMS, other=0)
                where = tl.load(terms + TERMS + k, mask=k < TERMS, other=0)
                tap = tl.load(terms + 2 * TERMS + k, mask=k < TERMS, other=0)
                weight = tl.load(w + first * apart + where, mask=tap != 0, other=0.0)
                in_map = (tap[:, None] & inside[None, :]) != 0
                number = tl.load(source + (base[None, :] + step[:, None]), mask=in_map, other=0.0)
                product += weight[:, None] * number
            tl.store(result + image * image_result + first * area + goal, tl.sum(product, axis=0), mask=goes)
        else:
            m = first + tl.arange(0, ROWS)
            total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
            for start in range(0, TERMS, DEPTH):
                k = start + tl.arange(0, DEPTH)
                step = tl.load(terms + k, mask=k < TERMS, other=0)
                where = tl.load(terms + TERMS + k, mask=k < TERMS, other=0)
                tap = tl.load(terms + 2 * TERMS + k, mask=k < TERMS, other=0)
                real = (m[:, None] < channels) & (tap[None, :] != 0)
                weight = tl.load(w + (m * apart)[:, None] + where[None, :], mask=real, other=0.0)
                in_map = (tap[:, None] & inside[None, :]) != 0
                number = tl.load(source + (base[None, :] + step[:, None]), mask=in_map, other=0.0)
                total = tl.dot(weight, number, total, input_precision=PRECISION)
            goal = image * image_result + goal
            tl.store(
                result + goal[None, :] + (m * area)[:, None],
                total,
                mask=(m[:, None] < channels) & goes[None, :],
            )

    @triton.jit
    def _weights(  # type: ignore[no-untyped-def]
        w, x, y, terms, places, clients, batch, outputs, taps, each, image_x,
        TERMS: tl.constexpr, PLACES: tl.constexpr,
        ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
    ):  # fmt: skip
        """w[channel, term] = sum over `each` places of y[channel, place] x[place + term], where it lies inside."""
        count = batch * PLACES
        tiles = tl.cdiv(taps, COLUMNS)
        client = (tl.program_id(0) // tiles).to(tl.int64)
        t = (tl.program_id(0) % tiles) * COLUMNS + tl.arange(0, COLUMNS)
        o = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
        step = tl.load(terms + t, mask=t < taps, other=0)
        tap = tl.load(terms + 2 * TERMS + t, mask=t < taps, other=0)
        x += client * batch * image_x
        y += client * outputs * count
        first = tl.program_id(2) * each
        total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
        for start in range(first, tl.minimum(first + each, count), DEPTH):
            k = start + tl.arange(0, DEPTH)
            image, place = k // PLACES, k % PLACES
            base = image * image_x + tl.load(places + place)
            inside = tl.where(k < count, tl.load(places + 2 * PLACES + place), 0)
            rest = image * (outputs * PLACES) + place
            here = (o[:, None] < outputs) & (k[None, :] < count)
            value = tl.load(y + (o * PLACES)[:, None] + rest[None, :], mask=here, other=0.0)
            in_map = (inside[:, None] & tap[None, :]) != 0
            number = tl.load(x + (base[:, None] + step[None, :]), mask=in_map, other=0.0)
            total = tl.dot(value, number, total, input_precision=PRECISION)
        w += (tl.program_id(2).to(tl.int64) * clients + client) * outputs * taps
        tl.store(
            w + (o * taps)[:, None] + t[None, :], total, mask=(o[:, None] < outputs) & (t[None, :] < taps)
        )

    @triton.jit
    def _squares(x, result, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        record = tl.program_id(0).to(tl.int64)
        total = tl.zeros((BLOCK,), dtype=tl.float64)
        for start in range(0, size, BLOCK):
            place = start + tl.arange(0, BLOCK)
            number = tl.load(x + record * size + place, mask=place < size, other=0.0).to(tl.float64)
            total += number * number
        tl.store(result + record, tl.sum(total))

    @triton.jit
    def _whole_sums(  # type: ignore[no-untyped-def]
        x, factor, result, clients, records, size, each, BLOCK: tl.constexpr
    ):  # fmt: skip
        place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        client = tl.program_id(1).to(tl.int64)
        first = tl.program_id(2) * each
        total = tl.zeros((BLOCK,), dtype=tl.float64)
        for record in range(first, tl.minimum(first + each, records)):
            times = tl.load(factor + client * records + record)
            number = tl.load(x + (client * records + record) * size + place, mask=place < size, other=0.0)
            total += (tl.where(times == 0.0, 0.0, number) * times).to(tl.int32).to(tl.float64)
        row = tl.program_id(2).to(tl.int64) * clients + client
        tl.store(result + row * size + place, total, mask=place < size)
