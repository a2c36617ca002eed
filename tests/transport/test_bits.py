"""Packed numbers and framed byte strings, to the byte: parties of different versions must read each other."""

import numpy as np
import pytest

from fedsynth.errors import BadInput
from fedsynth.transport.bits import frame, pack, packed_size, unframe, unpack


def numbers(*values):
    return np.array(values, dtype=np.uint32)


def bitwise(values, bits):
    """Least significant bit first, padded with zeros to whole groups of eight numbers."""
    total = sum((int(value) % 2**bits) << (bits * place) for place, value in enumerate(values))
    return total.to_bytes(-(-len(values) // 8) * bits, "little")


@pytest.mark.parametrize("bits", [1, 4, 7, 8, 9, 16, 20, 31, 32])
@pytest.mark.parametrize("dim", [1, 7, 8, 9, 33])
def test_numbers_lie_without_gaps_least_significant_bit_first(bits, dim):
    values = np.random.default_rng(bits * 100 + dim).integers(0, 2**32, dim, dtype=np.uint32)
    assert pack(values, bits) == bitwise(values, bits)
    found = unpack(pack(values, bits), dim, bits)
    assert found.dtype == np.uint32 and found.tolist() == (values.astype(np.int64) % 2**bits).tolist()


def test_nothing_packs_to_nothing():
    assert pack(numbers(), 20) == b"" and unpack(b"", 0, 20).tolist() == [] and packed_size(0, 20) == 0


@pytest.mark.parametrize(("dim", "size"), [(1, 20), (8, 20), (9, 40), (16, 40)])
def test_the_size_is_that_of_whole_groups(dim, size):
    assert packed_size(dim, 20) == size


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"\0"])
def test_a_vector_of_another_length_is_refused(change):
    with pytest.raises(BadInput, match="a vector of .* 3 numbers of 20 bits have 20"):
        unpack(change(pack(numbers(1, 2, 3), 20)), 3, 20)


def test_a_frame_has_each_piece_behind_its_length():
    assert frame([b"ab", b"", b"c"]) == b"\2\0\0\0ab" + b"\0\0\0\0" + b"\1\0\0\0c"
    assert unframe(frame([b"ab", b"", b"c"])) == [b"ab", b"", b"c"] and unframe(b"") == []


def test_a_frame_of_a_long_piece_is_read_whole():
    assert unframe(frame([b"x" * 70_000, b"y"])) == [b"x" * 70_000, b"y"]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_frame_that_ends_in_a_length_is_refused(cut):
    with pytest.raises(BadInput, match="in the middle of a length"):
        unframe(frame([b"ab"]) + bytes(cut))


def test_a_frame_that_ends_in_a_piece_is_refused_with_what_is_missing():
    with pytest.raises(BadInput, match="ends 2 bytes too early"):
        unframe(frame([b"abc"])[:-2])


def test_another_number_of_pieces_is_refused():
    assert unframe(frame([b"a", b"b"]), 2) == [b"a", b"b"] and unframe(b"", 0) == []
    for count in (0, 1, 3):
        with pytest.raises(BadInput, match=f"has 2 parts; expected {count}"):
            unframe(frame([b"a", b"b"]), count)


def test_the_last_piece_may_be_empty():
    assert unframe(frame([b"a", b""])) == [b"a", b""]


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\xfc\xff\xff\xff", b"\0\0\0\x80"])
def test_a_length_beyond_two_gigabytes_is_no_negative_one(length):
    with pytest.raises(BadInput, match="bytes too early"):
        unframe(length + b"abcd")
