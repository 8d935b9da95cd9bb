"""Find the rows of a source that are not yet published under the release."""

from __future__ import annotations

from typing import Any

import polars as pl

from dptext_etl.errors import InputError, PolicyError, seam
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish import own_ids
from dptext_etl.runner.publish.manifest import Manifest, scan_parts
from dptext_etl.runner.source.anti_join import others
from dptext_etl.runner.source.roles import shown_columns


def continues(policy: Policy, layout: Layout, manifest: Manifest | None) -> bool:
    """Return whether an incremental run adds to what a manifest lists."""
    if manifest is None:
        return False
    if manifest.dataset != policy.dataset or manifest.partition != layout.partition:
        msg = f"the sink holds dataset {manifest.dataset!r}, the policy is for {policy.dataset!r}"
        raise PolicyError(msg, "give every dataset a sink of its own")
    if not policy.incremental or manifest.release != policy.release:
        return False
    now: dict[str, Any] = {"columns": list(shown_columns(policy)), "format": layout.sink_format, "cfg": _cfgs(policy)}
    now["ids"] = policy.ids
    now["postprocess"] = {item.column: item.chain for item in policy.column_policies() if item.chain is not None}
    then = {
        "columns": list(manifest.schema),
        "format": manifest.file_format,
        "ids": manifest.ids,
        "cfg": {item["name"]: item["cfg"] for item in manifest.columns},
        "postprocess": {item["name"]: item["chain"] for item in manifest.columns if "chain" in item},
    }
    if now != then:
        changed = ", ".join(name for name in now if now[name] != then[name])
        msg = f"what is published differs from the policy in: {changed}; new parts would not fit the old ones"
        raise PolicyError(msg, "run once with incremental = false, which publishes every row again at no cost")
    return True


def unpublished(frame: pl.LazyFrame, policy: Policy, layout: Layout, manifest: Manifest) -> tuple[pl.LazyFrame, int]:
    """Drop the rows whose ids are published; the order stays. Memory is one bit per row of the source, and constant."""
    with seam("reading the ids that are published", hint="are the published parts all there?"):
        dtype = frame.collect_schema()[policy.id]
        if policy.ids == "keep":
            published = scan_parts(manifest, layout, as_written=(policy.id,)).select(pl.col(policy.id).cast(dtype))
        else:
            require_plain(policy, dtype)
            ids = own_ids.of_parts(layout.staging, (part.sha256 for part in manifest.parts))
            published = pl.LazyFrame({policy.id: pl.concat(ids).drop_nulls()}).select(pl.col(policy.id).cast(dtype))
    return others(frame, published, policy.id, layout.staging.folder)


def require_plain(policy: Policy, dtype: pl.DataType) -> None:
    """Refuse ids whose canonical strings cannot be read back, where the published table does not hold them."""
    if dtype != pl.String and not dtype.is_integer():
        msg = (
            f"an incremental run with ids = {policy.ids!r} compares ids that are strings or whole numbers, got {dtype}"
        )
        raise InputError(msg, "set incremental = false: published rows cost nothing a second time")


def refuse_deletions(policy: Policy, manifest: Manifest, there: int) -> None:
    """Refuse an incremental source from which records have gone that are still published.

    A source that holds none of the published records is taken for one of new rows only.
    """
    gone = manifest.rows - there
    if policy.deletions == "refuse" and there and gone > 0:
        msg = (
            f"{gone} of {manifest.rows} published records are no longer in the source, and an incremental run only adds"
        )
        hint = '`dptext forget POLICY --missing` takes them out; deletions = "keep" if the source holds new rows only'
        raise InputError(msg, hint)


def _cfgs(policy: Policy) -> dict[str | None, str]:
    return {item.column: item.mechanism.cfg() for item in policy.column_policies()}
