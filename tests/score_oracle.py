"""An independent implementation of draws by scores (docs/spec/stream.md#draw-two-levels)."""

import itertools
import math

import numpy as np
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.sampling import TOKEN, Slots

OVERFLOW = 1 << 31
RECORD = bytes.fromhex("e353bcaa494e7cd3361f12b7817fe00ddc0ba5328def9e8517aee79144a557b8")
KEYS = [RECORD, bytes([7]) * 32, bytes([9]) * 32]
WIDE = [1 + (i * 2654435761) % 1000003 for i in range(10000)]
HEAVY = [2**52 - 1] * 255 + [2**62 // 3] + [2**50] * 5000
ROBERTA = {"low": -3.2093127, "high": 16.304797887802124}


def epsilon_star(epsilon: float, m: int) -> float:
    """The exact pure parameter of the exponential mechanism over `m` outcomes (docs/spec/privacy.md#epsilon-star)."""
    tail = math.exp(-epsilon / 2)
    return epsilon / 2 + math.log(tail + m - 1) - math.log1p((m - 1) * tail)


def slots_of(records, positions):
    return Slots(pa.array(KEYS, pa.binary(32)), np.asarray(records, np.uint32), np.asarray(positions, np.uint64))


def some_slots(n, first=0):
    return slots_of([i % 3 for i in range(n)], range(first, first + n))


def oracle_overflow(key, purpose, position):
    for i in itertools.count():
        yield _kernel.stream_words(key, purpose | OVERFLOW, position, i, 1)[0]


def oracle_below(bound, word, more):
    while word > (2**64 // bound) * bound - 1:
        word = next(more)
    return word % bound


def oracle_index(row, rest):
    return next(i for i, total in enumerate(itertools.accumulate(row)) if total > rest)


def oracle_draw(key, purpose, position, row):
    width = 2 if len(row) > 4096 else 1
    more = oracle_overflow(key, purpose, position)
    slot = _kernel.stream_words(key, purpose, 0, position * width, width)
    chosen = oracle_below(sum(row), slot[0], more)
    if width == 1:
        return oracle_index(row, chosen)
    blocks = [row[i : i + 256] for i in range(0, len(row), 256)]
    block = oracle_index(map(sum, blocks), chosen)
    return 256 * block + oracle_index(blocks[block], oracle_below(sum(blocks[block]), slot[1], more))


def oracle_draws(rows, slots, purpose=TOKEN):
    places = zip(rows, slots.records, slots.positions, strict=True)
    return [oracle_draw(KEYS[r], purpose, int(p), [int(w) for w in row]) for row, r, p in places]


def odd_scores(n, m, dtype=np.float32, seed=0):
    """Scores of a wide range with some that are not numbers, infinite or equal to the best."""
    random = np.random.default_rng(seed)
    scores = random.normal(6, 6, (n, m)).astype(dtype)
    odd = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 16.3], dtype)
    places = random.random((n, m)) < 0.05
    scores[places] = random.choice(odd, places.sum())
    return scores


def formula_scores(n, m):
    """Scores that are the same floats on every machine."""
    i = np.arange(n * m, dtype=np.uint64).reshape(n, m)
    return ((i * np.uint64(2654435761)) % np.uint64(1000003)).astype(np.float32) / np.float32(50_000) - np.float32(4)


# Draws on a device, here on the CPU as one


def device_weights(torch, rows):
    padded = torch.zeros((len(rows), len(rows[0]) + -len(rows[0]) % 256), dtype=torch.int64)
    padded[:, : len(rows[0])] = torch.tensor(rows, dtype=torch.int64)
    return padded
