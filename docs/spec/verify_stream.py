#!/usr/bin/env python3
"""Compute the golden vectors of `stream.md`, from the standard library and `cryptography` alone, and compare them."""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from itertools import islice
from math import isqrt
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

PAGE = Path(__file__).with_name("stream.md")
OVERFLOW = 1 << 31
LARGEST_ONE_LEVEL = 4096
BLOCK = 256


def mac(key: bytes, message: bytes) -> bytes:
    """H(k, m)."""
    return hmac.new(key, message, hashlib.sha256).digest()


def canon(value: Any) -> bytes:
    """Canonical JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


SECRET = bytes(range(32))
FINGERPRINT_KEY = mac(SECRET, b"dptext/fp/v1\0")
CONFIGURATION = {
    "epsilon": "2.0",
    "mechanism": "custext",
    "mechanism_version": 1,
    "segmentation": "unicode-16",
    "table": "ab" * 32,
}
CFG = hashlib.sha256(b"dptext/cfg/v1\0" + canon(CONFIGURATION)).hexdigest()
RELEASE_KEY = mac(
    SECRET, b"dptext/rel/v1\0" + canon({"v": 1, "ds": "demo", "col": "text", "rel": "2025-01", "mech": CFG})
)


def fingerprint(text: str | None) -> bytes:
    """The text fingerprint."""
    return mac(FINGERPRINT_KEY, b"\x00" if text is None else b"\x01" + text.encode())


def sealed(label: bytes, names: Sequence[str]) -> bytes:
    """A key or commitment under the label `seal`."""
    return mac(SECRET, b"dptext/seal/v1\0" + label + b"\0" + canon(names))


def record_key(record: str, text: str | None, nonce: int = 0) -> bytes:
    """The record key."""
    rid = record.encode()
    sizes = struct.pack("<Q", len(rid)), struct.pack("<Q", nonce)
    return mac(RELEASE_KEY, b"dptext/rec/v1\0" + sizes[0] + rid + fingerprint(text) + sizes[1])


def keystream(key: bytes, purpose: int, position: int, first: int, count: int) -> Sequence[int]:
    """Return `count` 64-bit words of ChaCha20 from word `first` on."""
    block, skip = divmod(first, 8)
    nonce = struct.pack("<I", block) + struct.pack("<IQ", purpose, position)
    stream = Cipher(algorithms.ChaCha20(key, nonce), None).encryptor().update(bytes(8 * (skip + count)))
    return struct.unpack(f"<{skip + count}Q", stream)[skip:]


def slot(key: bytes, purpose: int, position: int, width: int) -> Sequence[int]:
    """Return the words of a position."""
    return keystream(key, purpose, 0, position * width, width)


def overflow(key: bytes, purpose: int, position: int) -> Iterator[int]:
    """Yield what a draw takes beyond its slot."""
    first = 0
    while True:
        yield keystream(key, purpose | OVERFLOW, position, first, 1)[0]
        first += 1


def limit(total: int) -> int:
    """Words below it are accepted."""
    return (2**64 // total) * total


def below(total: int, word: int, more: Iterator[int]) -> int:
    """Return an integer below `total`."""
    while word >= limit(total):
        word = next(more)
    return word % total


def index(weights: Sequence[int], number: int) -> int:
    """First index whose running sum exceeds the number."""
    for place, weight in enumerate(weights):
        if number < weight:
            return place
        number -= weight
    raise AssertionError("the number is below the sum of the weights")


def split(weights: Sequence[int]) -> list[Sequence[int]]:
    """Blocks of consecutive ids."""
    return [weights[first : first + BLOCK] for first in range(0, len(weights), BLOCK)]


def draw(key: bytes, purpose: int, position: int, weights: Sequence[int], width: int) -> int:
    """Draw an index; width is 2 if any weighted output set of the configuration exceeds 4,096, else 1."""
    more, words = overflow(key, purpose, position), slot(key, purpose, position, width)
    if len(weights) <= LARGEST_ONE_LEVEL:
        return index(weights, below(sum(weights), words[0], more))
    blocks = split(weights)
    chosen = index([sum(block) for block in blocks], below(sum(weights), words[0], more))
    return BLOCK * chosen + index(blocks[chosen], below(sum(blocks[chosen]), words[1], more))


def uniform(key: bytes, purpose: int, position: int, m: int, width: int) -> int:
    """Draw one of m ids uniformly."""
    return below(m, slot(key, purpose, position, width)[0], overflow(key, purpose, position))


DIGITS = Context(prec=60, Emax=10**9, Emin=-(10**9))


def shown(m: int, epsilon: str, hit: str) -> int:
    """Return d, the number of near texts among m, for a hit rate."""
    odds = DIGITS.exp(Decimal(epsilon))
    rate = Decimal(hit)
    below_it = DIGITS.add(DIGITS.multiply(odds, DIGITS.subtract(Decimal(1), rate)), rate)
    d = DIGITS.divide(DIGITS.multiply(Decimal(m), rate), below_it)
    return min(m - 1, max(1, int(d.to_integral_value(ROUND_HALF_EVEN))))


def mixture_weights(m: int, d: int, epsilon: str) -> tuple[int, int]:
    """Return the weights of a text inside and outside of the d near ones."""
    odds = DIGITS.exp(Decimal(epsilon))
    for b in range(46, -1, -1):
        outside = 1 << b
        scaled = DIGITS.multiply(Decimal(outside), odds)
        if scaled > 1 << 62:
            continue
        inside = int(scaled.to_integral_value(ROUND_FLOOR))
        if m * outside + d * (inside - outside) <= 1 << 62:
            return inside, outside
    return ((1 << 62) - (m - d)) // d, 1


def mixture(key: bytes, position: int, m: int, d: int, weights: tuple[int, int]) -> str:
    """Draw "i" and an id, or "r" and a rank among the d near ones."""
    inside, outside = weights
    total = m * outside + d * (inside - outside)
    number = below(total, slot(key, 1, position, 1)[0], overflow(key, 1, position))
    if number < m * outside:
        return f"i{number // outside}"
    return f"r{(number - m * outside) // (inside - outside)}"


def row_digest(record: str, text: str | None, label: str | None) -> int:
    """Return the keyed hash of a row of a statistic, as a little-endian number."""
    rid = record.encode()
    named = b"\x00" if label is None else b"\x01" + label.encode()
    message = b"dptext/row/v1\0" + struct.pack("<Q", len(rid)) + rid + fingerprint(text) + named
    return int.from_bytes(mac(RELEASE_KEY, message), "little")


def noise_key(digest: bytes, sums: Sequence[int]) -> bytes:
    """Return the noise key of a statistic."""
    return mac(RELEASE_KEY, b"dptext/sum/v1\0" + digest + struct.pack(f"<{len(sums)}q", *sums))


def coin(p: int, q: int, number: Callable[[int], int]) -> bool:
    """Return True with probability exp(-p/q), p <= q (algorithm 1)."""
    k = 1
    while number(q * k) < p:
        k += 1
    return k % 2 == 1


def laplace(t: int, number: Callable[[int], int]) -> int:
    """Draw k with probability proportional to exp(-|k| / t) (algorithm 2)."""
    while True:
        rest, whole = number(t), 0
        if not coin(rest, t, number):
            continue
        while coin(1, 1, number):
            whole += 1
        k, negative = rest + t * whole, number(2) == 0
        if k or not negative:
            return -k if negative else k


def gaussian(key: bytes, position: int, a: int, b: int) -> int:
    """Draw k with probability proportional to exp(-k^2 b / (2 a)) (algorithm 3)."""
    words = overflow(key, 9, position)

    def pair(bound: int) -> int:
        while True:
            low = next(words)
            number = low + (next(words) << 64)
            if number < 2**128 // bound * bound:
                return number % bound

    def one(bound: int) -> int:
        return below(bound, next(words), words)

    t = isqrt(a // b) + 1
    while True:
        k = laplace(t, one)
        p, q = (abs(k) * t * b - a) ** 2, 2 * a * b * t * t
        if all(coin(1, 1, one) for _ in range(p // q)) and coin(p % q, q, pair):
            return k


def rejections(key: bytes, weights: Sequence[int]) -> tuple[list[int], list[int]]:
    """Positions below 64 whose first word, or whose second, is rejected by a draw in two levels."""
    first, second = [], []
    blocks = split(weights)
    for position in range(64):
        words = slot(key, 1, position, 2)
        if words[0] >= limit(sum(weights)):
            first.append(position)
        elif words[1] >= limit(sum(blocks[index([sum(block) for block in blocks], words[0] % sum(weights))])):
            second.append(position)
    return first, second


def golden() -> list[str]:
    """Return the golden vectors as the lines of `stream.md`."""
    key = record_key("r1", "hello world")
    staging, body = sealed(b"dptext/staging/v1", ["demo", "sink", "2025-01", "_"]), canon(["shard"]) + b'{"version": 5}'

    def hexes(words: Sequence[int]) -> str:
        return " ".join(format(word, "016x") for word in words)

    def drawn(positions: Sequence[int], weights: Sequence[int], width: int) -> str:
        return " ".join(str(draw(key, 1, position, weights, width)) for position in positions)

    few, large = [5, 1, 3], [3 * 2**61, 1, 2**60]
    wide = [1 + (i * 2654435761) % 1000003 for i in range(10000)]
    heavy = [2**52 - 1] * 255 + [2**62 // 3] + [2**50] * 5000  # rejections at both levels are common
    rejected = [position for position in range(16) if slot(key, 1, position, 1)[0] >= limit(sum(large))]
    first, second = rejections(key, heavy)

    def mixed(epsilon: str, hit: str) -> str:
        d = shown(20000, epsilon, hit)
        inside, outside = mixture_weights(20000, d, epsilon)
        total = 20000 * outside + d * (inside - outside)
        again = [place for place in range(500) if slot(key, 1, place, 1)[0] >= limit(total)][:1]
        drawn = [mixture(key, place, 20000, d, (inside, outside)) for place in (*range(8), *again)]
        said = "".join(f"; rejected once: {place} -> {drawn[-1]}" for place in again)
        law = f"ε {epsilon}, hit {hit}: d {d}, w 2^{outside.bit_length() - 1}, W {inside}"
        return f"{law}: {' '.join(drawn[:8])}{said}"

    rows = [("r1", "hello world", "a"), ("r2", "", None), ("r3", None, "b")]
    digest = (sum(row_digest(*row) for row in rows) % 2**256).to_bytes(32, "little")
    noise = noise_key(digest, [1, -2, 3])

    def noised(a: int, b: int) -> str:
        return " ".join(str(gaussian(noise, position, a, b)) for position in range(8))

    at = {position: draw(key, 1, position, heavy, 2) for position in (*first[:2], *second[:2])}
    return [
        f"cfg  {CFG}",
        f"K_fp {FINGERPRINT_KEY.hex()}",
        f'fp("hello world") {fingerprint("hello world").hex()}',
        f'fp("")            {fingerprint("").hex()}',
        f"fp(null)          {fingerprint(None).hex()}",
        f"R                 {RELEASE_KEY.hex()}",
        f'r("r1", "hello world", nonce 0) {key.hex()}',
        f'r("r1", "hello world", nonce 1) {record_key("r1", "hello world", 1).hex()}',
        f'r("é", "naïve 😀", nonce 0)     {record_key("é", "naïve 😀").hex()}',
        f"key commitment    {sealed(b'dptext/key/v1', ['demo', 'text', '2025-01']).hex()}",
        f'seal of the shard {{"version": 5}}, folders "sink", "2025-01", and "_" {mac(staging, body).hex()}',
        'with r("r1", "hello world", 0):',
        f"  purpose 1, words 0-3   {hexes(keystream(key, 1, 0, 0, 4))}",
        f"  purpose 1, words 9-10  {hexes(keystream(key, 1, 0, 9, 2))}",
        f"  purpose 4, coordinate 7 (width 2)  {hexes(slot(key, 4, 7, 2))}",
        f"  overflow of purpose 1, position 3  {hexes(list(islice(overflow(key, 1, 3), 3)))}",
        f"  width 1, weights 5 1 3, positions 0-15: {drawn(range(16), few, 1)}",
        (
            f"  width 1, uniform below 20,000 at position 3: {uniform(key, 1, 3, 20000, 1)}; "
            f"then 5 1 3 at 4-7: {drawn(range(4, 8), few, 1)}"
        ),
        (
            f"  width 1, weights 3·2^61, 1, 2^60, positions 0-15: {drawn(range(16), large, 1)} "
            f"(position {rejected[0]} is rejected once)"
        ),
        f"  width 2, 10,000 weights 1 + (i·2654435761 mod 1000003), positions 0-7: {drawn(range(8), wide, 2)}",
        (
            f"  width 2, mixed: 5 1 3 at 0 -> {draw(key, 1, 0, few, 2)}; "
            f"the 10,000 at 1 -> {draw(key, 1, 1, wide, 2)}; 5 1 3 at 2 -> {draw(key, 1, 2, few, 2)}"
        ),
        (
            f"  width 2, 255 weights 2^52-1, one 2^62 div 3, 5,000 weights 2^50: positions 0-7: "
            f"{drawn(range(8), heavy, 2)};"
        ),
        (
            f"     first level rejects at {first[0]} -> {at[first[0]]} and {first[1]} -> {at[first[1]]}; "
            f"second level at {second[0]} -> {at[second[0]]} and {second[1]} -> {at[second[1]]}"
        ),
        "  width 1, mixtures of m = 20,000, positions 0-7 (i: an id, r: a rank in N(x), from 0):",
        *(f"     {mixed(*pair)}" for pair in (("4.0", "0.7"), ("8.0", "0.9"), ("0.1", "0.5"), ("50.0", "0.999999"))),
        'with R, rows ("r1", "hello world", label "a"), ("r2", "", no label), ("r3", null, label "b"):',
        f"  table digest {digest.hex()}",
        f"  noise key of the sums 1 -2 3: {noise.hex()}",
        f"  purpose 9, variance 1, positions 0-7: {noised(1, 1)}",
        f"  purpose 9, variance 5/2, positions 0-7: {noised(5, 2)}",
        f"  purpose 9, variance 2^48, positions 0-7: {noised(2**48, 1)}",
    ]


def stated() -> list[str]:
    """Return the golden vectors that the page states, its example configuration left out."""
    block = PAGE.read_text(encoding="utf-8").partition("{#golden-vectors}")[2].split("```")[1]
    return block.strip("\n").splitlines()[1:]


def main() -> int:
    """Print what was computed; say where the page differs."""
    computed, written = golden(), stated()
    print("\n".join(computed))
    differs = [line for line in written if line not in computed]
    if differs or len(written) != len(computed):
        print(f"{PAGE.name} states otherwise:", *differs, sep="\n", file=sys.stderr)
        return 1
    print("ALL OK")
    return 0


if __name__ == "__main__":
    sys.exit(main())
