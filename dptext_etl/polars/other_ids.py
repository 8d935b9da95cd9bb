"""Warn where the ids of a frame have another type than those of a release: other ids draw other texts.

A CSV file holds no types. The command line reads its ids as strings, and `pl.read_csv` makes numbers of them.
"""

from __future__ import annotations

import warnings

import polars as pl

from dptext_etl.errors import DPTextError
from dptext_etl.id_forms import IdForm
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.ledger.storage.store import there_is
from dptext_etl.policy import PARTITION, Policy
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.runner.publish.manifest import Manifest
from dptext_etl.runner.source.roles import form_of


class OtherIdsWarning(UserWarning):
    """Record ids have another type than those of a release of the same name."""


def warn_of_other_ids(policy: Policy, name: str, frame: pl.DataFrame | pl.LazyFrame) -> None:
    """Warn if the ledger pins ids of another type than `name` has in a frame, or the published table shows them."""
    try:
        found = _released(policy)
        dtype = None if found is None else frame.lazy().collect_schema().get(name)
        now = None if dtype is None else form_of(dtype)
    except (DPTextError, pl.exceptions.PolarsError):  # the call itself says what is wrong
        return
    if found is None or now is None or found.kind == now.kind:
        return
    msg = (
        f"ids in column {name!r} are {now.kind} here, and {found.kind} in {policy.dataset}, release {policy.release}: "
        "the texts differ from those of that release. Bring the column into that type; of a CSV file, "
        f"pl.read_csv(…, schema_overrides={{{name!r}: pl.String}}) reads strings, as the command line does"
    )
    warnings.warn(msg, OtherIdsWarning, stacklevel=2)


def _released(policy: Policy) -> IdForm | None:
    """Return the form of the ids of a release, as the ledger or the published table says; None where neither knows."""
    if there_is(policy.ledger.url):
        with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
            pinned = ledger.pinned_forms(Scope.of(policy), list(policy.text_columns))
        if "record" in pinned:
            return pinned["record"]
    if PARTITION in policy.sink or is_remote(policy.sink) or policy.ids != "keep":
        return None
    manifest = Manifest.read(Layout.of_sink(policy.sink, {}))
    if manifest is None or (manifest.dataset, manifest.release) != (policy.dataset, policy.release):
        return None
    written = manifest.schema.get(policy.id)
    if written == "String":
        return IdForm("string")
    return IdForm("integer") if written is not None and written.lstrip("U").startswith("Int") else None
