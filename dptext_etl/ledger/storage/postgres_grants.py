"""Grant a role of PostgreSQL what it needs of a ledger, and name what a role lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

Role = Literal["writer", "auditor", "owner"]

WRITES: Mapping[str, str] = {
    "meta": "INSERT, UPDATE, DELETE",
    "event": "INSERT",
    "segment": "INSERT, UPDATE, DELETE",
    "release": "INSERT, UPDATE",
    "tally": "INSERT, UPDATE",
    "scope": "INSERT, UPDATE",
    "member": "INSERT",
    "batch": "INSERT, UPDATE",
    "commit_part": "INSERT",
    "run": "INSERT, DELETE",
    "run_part": "INSERT, DELETE",
    "frozen": "INSERT, DELETE",
    "burnt": "INSERT",
    "publication": "INSERT",
}
"""What a writer does to each table, next to reading it: no writer changes or deletes an event."""

_STATEMENT = re.compile(r"\s*(insert|update|delete|select)\b(?:.*?\b(?:into|from)\b)?\s+\"?(\w+)", re.DOTALL)
_FOR = "`dptext ledger grants --role {role}` prints what to grant"


def script(role: Role, name: str, database: str, schema: str) -> str:
    """Return the statements that make a role of the server a writer, an auditor or the owner of a ledger."""
    return "\n".join(
        [f"GRANT CONNECT ON DATABASE {_quoted(database)} TO {_quoted(name)};", *_within(role, name, schema)]
    )


def _within(role: Role, name: str, schema: str) -> Iterator[str]:
    to, space = _quoted(name), _quoted(schema)
    if role == "owner":
        yield f"CREATE SCHEMA IF NOT EXISTS {space} AUTHORIZATION {to};"
        yield f"ALTER SCHEMA {space} OWNER TO {to};"
        yield "DO $$ DECLARE name text; BEGIN"
        yield f"  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = {_literal(schema)} LOOP"  # noqa: S608
        yield f"    EXECUTE format('ALTER TABLE %I.%I OWNER TO %I', {_literal(schema)}, name, {_literal(name)});"
        yield "  END LOOP;"
        yield "END $$;"
        return
    yield f"GRANT USAGE ON SCHEMA {space} TO {to};"
    yield f"GRANT SELECT ON ALL TABLES IN SCHEMA {space} TO {to};"
    if role == "writer":
        yield from (f"GRANT {what} ON {space}.{table} TO {to};" for table, what in WRITES.items())


def lacking(statement: str) -> tuple[str, str]:
    """Return what a role lacks whose statement was refused, and a hint."""
    words = statement.split()
    if words[:1] == ["create"]:
        where = "the database" if words[1:2] == ["schema"] else "the schema"
        return f"it lacks CREATE on {where}", _FOR.format(role="owner")
    found = _STATEMENT.match(statement)
    if found is None:
        return "it does not own the tables", _FOR.format(role="owner")
    verb, table = found[1].upper(), found[2]
    needed = f"{verb} and UPDATE" if statement.lstrip().startswith("insert or replace") else verb
    return f"it lacks {needed} on the table {table}", _FOR.format(role="auditor" if verb == "SELECT" else "writer")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
