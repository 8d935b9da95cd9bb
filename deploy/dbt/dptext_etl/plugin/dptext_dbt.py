"""A plugin of dbt-duckdb: SQL functions that release text columns, and sources that read published tables.

In profiles.yml its `config` has `functions`: names of SQL functions, each with a `policy` (a file) and, where the
policy has several text columns, a `column`. A source with `meta: {plugin: dptext_dbt, policy: privacy.toml}` is the
table that runs of this policy published. Neither starts a run.
"""

from __future__ import annotations

from typing import Any

from dbt.adapters.duckdb.plugins import BasePlugin

from dptext_etl import Policy
from dptext_etl.duckdb import register
from dptext_etl.runner import scan_published


class Plugin(BasePlugin):
    def initialize(self, plugin_config: dict[str, Any]) -> None:
        self._functions: dict[str, dict[str, str]] = plugin_config.get("functions") or {}

    def configure_connection(self, conn: Any) -> None:
        for name, entry in self._functions.items():
            register(conn, name, Policy.load(entry["policy"]).column_policy(entry.get("column")))

    def load(self, source_config: Any) -> Any:
        """Return the published table of a policy, its files checked by the hashes of the manifest."""
        policy = Policy.load(source_config["policy"])
        return scan_published(policy.sink, policy.storage_options).collect().to_arrow()
