"""Describe a release as data: `ColumnPolicy` for one column, `Policy` for a dataset (a TOML file).

A policy holds references to keys, never keys, so it can be printed, logged and sent anywhere.
"""

from dptext_etl.policy.checked import KeyReference, Name
from dptext_etl.policy.column_policy import ColumnPolicy, ColumnSpec
from dptext_etl.policy.consent import Accepted, require_acceptance, require_consent
from dptext_etl.policy.dataset_policy import PARTITION, Policy
from dptext_etl.policy.resolving import PolicyLike, resolve, resolve_column
from dptext_etl.policy.terms import Cap, DagsterSpec, LedgerSpec

__all__ = [
    "PARTITION",
    "Accepted",
    "Cap",
    "ColumnPolicy",
    "ColumnSpec",
    "DagsterSpec",
    "KeyReference",
    "LedgerSpec",
    "Name",
    "Policy",
    "PolicyLike",
    "require_acceptance",
    "require_consent",
    "resolve",
    "resolve_column",
]
