"""Define `dptext schema`, which prints the JSON Schema of the policy file."""

from __future__ import annotations

EXAMPLE = "dptext schema > policy.schema.json"
KEYS = ()


def schema() -> None:
    """Print the JSON Schema of the policy file, for editors and other tools."""
    from dptext_etl.cli.render.terminal import emit
    from dptext_etl.policy import Policy

    emit({"$schema": "https://json-schema.org/draft/2020-12/schema", **Policy.model_json_schema(by_alias=True)})
