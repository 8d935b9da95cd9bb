"""Describe a release as data: `ColumnPolicy` for one column, `Policy` for a dataset (a TOML file).

A policy holds references to keys, never keys, so it can be printed, logged and sent anywhere.
"""

from dptext_etl.policy.column_policy import PARTITION, ColumnPolicy, ColumnSpec
from dptext_etl.policy.dataset_policy import Policy
from dptext_etl.policy.policy_like import (
    PolicyLike,
    columns_and_id,
    resolve,
    resolve_column,
    run_policy,
    table_of,
    tables_of,
)
from dptext_etl.policy.terms import Cap, DagsterSpec, KeyReference, LedgerSpec, Name

__all__ = [
    "PARTITION",
    "Cap",
    "ColumnPolicy",
    "ColumnSpec",
    "DagsterSpec",
    "KeyReference",
    "LedgerSpec",
    "Name",
    "Policy",
    "PolicyLike",
    "columns_and_id",
    "resolve",
    "resolve_column",
    "run_policy",
    "table_of",
    "tables_of",
]
