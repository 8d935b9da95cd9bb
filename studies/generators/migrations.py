"""Write the roles of a PostgreSQL ledger as migrations, from the statements that `dptext ledger grants` prints."""

from __future__ import annotations

from dptext_etl.ledger.storage.postgres import Role, grants

DATABASE, SCHEMA = "dptext", "dptext_ledger"
_ROLES: tuple[Role, ...] = ("owner", "writer", "steward", "auditor")


def _statements(*roles: Role) -> str:
    return "\n\n".join(f"-- {role}\n{grants(role, f'dptext_{role}', DATABASE, SCHEMA).strip()}" for role in roles)


def migrations() -> dict[str, str]:
    """Return the content of each file, by its name."""
    first = f"""\
-- Before `dptext ledger init`, as a superuser, in the database {DATABASE}: roles, and rights of the owner.
-- Give people and pipelines logins of their own, and one of these roles: GRANT dptext_writer TO etl;
"""
    made = "\n".join(f"CREATE ROLE dptext_{role} NOLOGIN;" for role in _ROLES)
    second = """\
-- After `dptext ledger init` and after each upgrade, as its owner or a superuser: it can be repeated.
"""
    return {
        "V1__roles.sql": f"{first}{made}\n\n{_statements('owner')}\n",
        "R__grants.sql": f"{second}{_statements('writer', 'steward', 'auditor')}\n",
    }
