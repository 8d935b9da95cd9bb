"""An independent implementation of keys, streams and draws (docs/spec/stream.md#keys)."""

import hashlib
import hmac
import itertools
import json
import struct

import pyarrow as pa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from dptext_etl import _kernel

OVERFLOW = 1 << 31

K = bytes(range(32))

CONFIG = {
    "epsilon": "2.0",
    "mechanism": "custext",
    "mechanism_version": 1,
    "segmentation": "unicode-16",
    "table": "ab" * 32,
}

CFG = "eadb3298c3f7b613c8ccfb0b0d7541474901682a1f314bb679743103a029cbd3"

RECORD = bytes.fromhex("e353bcaa494e7cd3361f12b7817fe00ddc0ba5328def9e8517aee79144a557b8")

WIDE = [1 + (i * 2654435761) % 1000003 for i in range(10000)]

HEAVY = [2**52 - 1] * 255 + [2**62 // 3] + [2**50] * 5000


def oracle_hmac(key, message):
    return hmac.new(key, message, hashlib.sha256).digest()


def oracle_canon(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def oracle_fingerprint(secret, text):
    key = oracle_hmac(secret, b"dptext/fp/v1\0")
    return oracle_hmac(key, b"\x00" if text is None else b"\x01" + text.encode())


def oracle_record(secret, dataset, column, release, cfg, rid, text, nonce):
    context = {"v": 1, "ds": dataset, "col": column, "rel": release, "mech": cfg}
    key = oracle_hmac(secret, b"dptext/rel/v1\0" + oracle_canon(context))
    name = rid.encode()
    parts = struct.pack("<Q", len(name)) + name + oracle_fingerprint(secret, text) + struct.pack("<Q", nonce)
    return oracle_hmac(key, b"dptext/rec/v1\0" + parts)


def oracle_words(key, purpose, position, first, n):
    block, skip = divmod(first, 8)
    nonce = struct.pack("<I", block) + struct.pack("<IQ", purpose, position)
    stream = Cipher(algorithms.ChaCha20(key, nonce), None).encryptor()
    return list(struct.unpack(f"<{skip + n}Q", stream.update(bytes(8 * (skip + n))))[skip:])


def oracle_overflow(key, purpose, position):
    for i in itertools.count():
        yield oracle_words(key, purpose | OVERFLOW, position, i, 1)[0]


def oracle_below(bound, word, more):
    while word > (2**64 // bound) * bound - 1:
        word = next(more)
    return word % bound


def oracle_index(weights, rest):
    for i, weight in enumerate(weights):
        if rest < weight:
            return i
        rest -= weight
    raise AssertionError


def oracle_draw(key, purpose, position, weights, width):
    more = oracle_overflow(key, purpose, position)
    slot = oracle_words(key, purpose, 0, position * width, width)
    if len(weights) <= 4096:
        return oracle_index(weights, oracle_below(sum(weights), slot[0], more))
    blocks = [weights[i : i + 256] for i in range(0, len(weights), 256)]
    block = oracle_index([sum(b) for b in blocks], oracle_below(sum(weights), slot[0], more))
    return 256 * block + oracle_index(blocks[block], oracle_below(sum(blocks[block]), slot[1], more))


def oracle_uniform(key, purpose, position, m, width):
    slot = oracle_words(key, purpose, 0, position * width, width)
    return oracle_below(m, slot[0], oracle_overflow(key, purpose, position))


def record_key(rid, text, nonce=0, cfg=CFG):
    release = _kernel.ReleaseKey(_kernel.Secret.from_bytes(K), "demo", "text", "2025-01", cfg)
    return pa.array(_kernel.record_keys(release, pa.array([rid]), pa.array([text]), nonce))[0].as_py()
