"""Define `dptext run`, which takes a policy from source to published table: reserve, stage, commit, check, publish."""

from __future__ import annotations

from dptext_etl.cli.options import AcceptLowerCap, Device, Dtype, Engine, Json, Partition, PolicyFile, Profile

EXAMPLE = "dptext run privacy.toml --partition 2026-10"
KEYS = (
    "dataset",
    "release",
    "partition",
    "version",
    "changed",
    "rows",
    "draws",
    "seconds",
    "draws_per_second",
    "spend",
    "remaining",
    "gates",
    "reports",
    "published",
    "published_rows",
    "manifest",
    "staging",
    "notes",
    "profile",
)


def run(
    policy: PolicyFile,
    *,
    partition: Partition = None,
    accept_lower_cap: AcceptLowerCap = False,
    engine: Engine = "polars",
    device: Device = None,
    dtype: Dtype = None,
    profile: Profile = False,
    as_json: Json = False,
) -> None:
    """Release the policy's columns, charge the ledger, check the gates, and publish.

    A run that was stopped continues where it stopped. A run over rows that were released before costs nothing and gives
    the same bytes. Both engines give a record the same text.
    """
    from dptext_etl.cli.running import compute_on, execute
    from dptext_etl.policy import Policy

    compute_on(device, dtype)
    execute(
        Policy.load(policy),
        partition=partition,
        as_json=as_json,
        engine=engine,
        accept_lower_cap=accept_lower_cap,
        profile=profile,
    )
