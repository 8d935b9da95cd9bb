"""Describe a release as data: `ColumnPolicy` for one column, `Policy` for a dataset (a TOML file).

A policy holds references to keys, never keys, so it can be printed, logged and sent anywhere.
"""

from dptext_etl.policy.column_policy import PARTITION as PARTITION
from dptext_etl.policy.column_policy import ColumnPolicy as ColumnPolicy
from dptext_etl.policy.column_policy import ColumnSpec as ColumnSpec
from dptext_etl.policy.dataset_policy import Policy as Policy
from dptext_etl.policy.policy_like import PolicyLike as PolicyLike
from dptext_etl.policy.policy_like import columns_and_id as columns_and_id
from dptext_etl.policy.policy_like import resolve as resolve
from dptext_etl.policy.policy_like import resolve_column as resolve_column
from dptext_etl.policy.policy_like import run_policy as run_policy
from dptext_etl.policy.policy_like import table_of as table_of
from dptext_etl.policy.policy_like import tables_of as tables_of
from dptext_etl.policy.terms import Cap as Cap
from dptext_etl.policy.terms import LedgerSpec as LedgerSpec
