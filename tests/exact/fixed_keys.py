"""Release texts with given record keys, so that a test fixes the keyed stream."""

import json
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.families.choice import ChoiceMechanism
from dptext_etl.families.stored_distributions import MappedMechanism
from dptext_etl.mechanism import Released


class FixedKeys(NamedTuple):
    """In the place of `RecordKeys`."""

    keys: pa.Array

    def of(self, texts):
        return self.keys


@lru_cache(maxsize=64)
def opened(kind, path, sha256):
    return kind.open(path, sha256)


def release_with_keys(mechanism, texts, keys):
    if not isinstance(mechanism, MappedMechanism | ChoiceMechanism):
        return mechanism.release(texts, FixedKeys(keys))
    kind = _kernel.Table if isinstance(mechanism, MappedMechanism) else _kernel.Corpus
    stored = opened(kind, str(mechanism.table.path), mechanism.table.sha256)
    out = pa.array(stored.release_with_keys(keys, texts, json.dumps(mechanism.input_policy(), sort_keys=True)))
    return Released(out.field("text"), out.field("positions"))
