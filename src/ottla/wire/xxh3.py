"""XXH3, 64 bits, seed 0: by this hash Apache Kafka 4.1 and later see that a group's topics have changed (KIP-1101).

Plain Python: it runs once for every change of a topic that consumer groups subscribe to, over some bytes a partition.
The algorithm and its numbers are those of the xxHash project's specification.
"""

from __future__ import annotations

import struct
from typing import Final

_MASK: Final = 2**64 - 1
_P32: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_P64: Final = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_MX1: Final = 0x165667919E3779F9
_MX2: Final = 0x9FB21C651E98DF25
_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
    "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d"
    "8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc"
    "8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_SECRET_BYTES: Final = 192
_STRIPE: Final = 64
_BLOCK: Final = 1024


def xxh3_64(data: bytes) -> int:
    """The hash of `data` as a signed number of 64 bits, as Java has it."""
    size = len(data)
    if size <= 16:
        value = _short(data, size)
    elif size <= 128:
        value = _up_to_128(data, size)
    elif size <= 240:
        value = _up_to_240(data, size)
    else:
        value = _long(data, size)
    return value - (1 << 64) if value >> 63 else value


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _u64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _fold(one: int, other: int) -> int:
    product = one * other
    return (product ^ product >> 64) & _MASK


def _avalanche(value: int) -> int:
    value = (value ^ value >> 37) * _MX1 & _MASK
    return value ^ value >> 32


def _avalanche_64(value: int) -> int:
    value = (value ^ value >> 33) * _P64[1] & _MASK
    value = (value ^ value >> 29) * _P64[2] & _MASK
    return value ^ value >> 32


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _short(data: bytes, size: int) -> int:
    if size > 8:
        low = _u64(data, 0) ^ _u64(_SECRET, 24) ^ _u64(_SECRET, 32)
        high = _u64(data, size - 8) ^ _u64(_SECRET, 40) ^ _u64(_SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(size + swapped + high + _fold(low, high) & _MASK)
    if size > 3:
        keyed = _u32(data, size - 4) + (_u32(data, 0) << 32) ^ _u64(_SECRET, 8) ^ _u64(_SECRET, 16)
        keyed = (keyed ^ _rotated(keyed, 49) ^ _rotated(keyed, 24)) * _MX2 & _MASK
        keyed = (keyed ^ (keyed >> 35) + size) * _MX2 & _MASK
        return keyed ^ keyed >> 28
    if size > 0:
        combined = data[0] << 16 | data[size >> 1] << 24 | data[size - 1] | size << 8
        return _avalanche_64(combined ^ _u32(_SECRET, 0) ^ _u32(_SECRET, 4))
    return _avalanche_64(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _mix16(data: bytes, at: int, secret_at: int) -> int:
    return _fold(_u64(data, at) ^ _u64(_SECRET, secret_at), _u64(data, at + 8) ^ _u64(_SECRET, secret_at + 8))


def _up_to_128(data: bytes, size: int) -> int:
    total = size * _P64[0]
    for pair in range((size - 1) // 32 + 1):
        total += _mix16(data, 16 * pair, 32 * pair) + _mix16(data, size - 16 * (pair + 1), 32 * pair + 16)
    return _avalanche(total & _MASK)


def _up_to_240(data: bytes, size: int) -> int:
    total = size * _P64[0] + sum(_mix16(data, 16 * at, 16 * at) for at in range(8))
    total = _avalanche(total & _MASK)
    total += sum(_mix16(data, 16 * at, 16 * (at - 8) + 3) for at in range(8, size // 16))
    return _avalanche(total + _mix16(data, size - 16, 136 - 17) & _MASK)


def _long(data: bytes, size: int) -> int:
    sums = [_P32[2], _P64[0], _P64[1], _P64[2], _P64[3], _P32[1], _P64[4], _P32[0]]
    blocks = (size - 1) // _BLOCK
    for at in range(0, blocks * _BLOCK, _STRIPE):
        _accumulate(sums, data, at, at % _BLOCK // 8)
        if (at + _STRIPE) % _BLOCK == 0:
            _scramble(sums)
    for at in range(blocks * _BLOCK, (size - 1) // _STRIPE * _STRIPE, _STRIPE):
        _accumulate(sums, data, at, at % _BLOCK // 8)
    _accumulate(sums, data, size - _STRIPE, _SECRET_BYTES - _STRIPE - 7)
    total = size * _P64[0]
    for pair in range(4):
        key, other = _u64(_SECRET, 11 + 16 * pair), _u64(_SECRET, 19 + 16 * pair)
        total += _fold(sums[2 * pair] ^ key, sums[2 * pair + 1] ^ other)
    return _avalanche(total & _MASK)


def _accumulate(sums: list[int], data: bytes, at: int, secret_at: int) -> None:
    words, keys = struct.unpack_from("<8Q", data, at), struct.unpack_from("<8Q", _SECRET, secret_at)
    for lane, (word, key) in enumerate(zip(words, keys, strict=True)):
        keyed = word ^ key
        sums[lane ^ 1] = sums[lane ^ 1] + word & _MASK
        sums[lane] = sums[lane] + (keyed & 0xFFFFFFFF) * (keyed >> 32) & _MASK


def _scramble(sums: list[int]) -> None:
    keys = struct.unpack_from("<8Q", _SECRET, _SECRET_BYTES - _STRIPE)
    for lane, key in enumerate(keys):
        value = sums[lane]
        sums[lane] = (value ^ value >> 47 ^ key) * _P32[0] & _MASK
