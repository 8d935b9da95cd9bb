"""Read the URL of a ledger in PostgreSQL: postgresql://USER@HOST:PORT/DATABASE?schema=NAME."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from dptext_etl.errors import LedgerError

DEFAULT_SCHEMA = "dptext_ledger"
_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def read(url: str) -> tuple[str, str]:
    """Split a URL into the connection string and the name of the schema."""
    try:
        parts = urlsplit(url)
    except ValueError:  # it quotes the URL
        hint = "write postgresql://user@host:port/database?schema=NAME; several hosts stand in a list with commas"
        raise LedgerError("the ledger's URL cannot be read", hint) from None
    query = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(query).get("schema", DEFAULT_SCHEMA)
    if not _SCHEMA_NAME.fullmatch(schema):
        raise LedgerError("the schema in the ledger's URL is no plain name", "use lower-case letters, digits and _")
    rest = urlencode([pair for pair in query if pair[0] != "schema"])
    return urlunsplit(parts._replace(query=rest)), schema


def public_name(conninfo: str, schema: str) -> str:
    """Name a ledger by its hosts, without its user and password."""
    parts = urlsplit(conninfo)
    hosts = parts.netloc.rpartition("@")[2].lower().translate({ord("["): None, ord("]"): None})
    return f"postgresql://{hosts}{parts.path} (schema {schema})"


def database(conninfo: str) -> str:
    """Return the database that a connection string names."""
    found = unquote(urlsplit(conninfo).path.strip("/"))
    if not found:
        raise LedgerError("the URL of the ledger names no database", "write postgresql://user@host/database")
    return found
