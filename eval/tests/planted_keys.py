"""Keys of audits, and planted bugs of keys, for any mechanism: what every audit must refute."""

import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.keys import RecordKeys

SECRETS = tuple(_kernel.Secret.from_bytes(bytes([number]) * 32) for number in (1, 2))


class PublicSeed:
    """A key that everybody knows."""

    def release(self, texts, keys):
        key = _kernel.ReleaseKey(_kernel.Secret.from_bytes(b"0" * 32), "audit", "words", "audit", self.cfg())
        return super().release(texts, RecordKeys(key, keys.ids, 0))


class SharedGenerator:
    """One stream for all records."""

    def release(self, texts, keys):
        return super().release(texts, RecordKeys(keys.release, pa.array(["0"] * len(texts)), 0))
