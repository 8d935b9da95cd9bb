"""Find secrets in the URLs and the object-store options of a policy, because a policy may be printed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

_SECRET = re.compile(
    r"secret|passw|credential$|(^|_)(token|sas)$|(account|access|storage|master|sas|encryption|signature)_key$|bearer|^key$"
)
"""Names of parameters and options whose values are secrets; paths of files and ids of keys are not secrets."""
REFERENCE = "env:"


def is_secret(name: str) -> bool:
    """Say whether an option of this name holds a secret.

    >>> is_secret("aws_secret_access_key"), is_secret("aws_access_key_id"), is_secret("sslpassword")
    (True, False, True)
    """
    return _SECRET.search(name.lower().replace("-", "_")) is not None


def holds_password(url: str) -> bool:
    """Say whether a URL holds a password, before its host or among its parameters.

    >>> holds_password("postgresql://u:p@host/db"), holds_password("postgresql://host/db?password=p")
    (True, True)
    >>> holds_password("postgresql://u@host/db?sslmode=require"), holds_password("ledger.db")
    (False, False)
    """
    if "://" not in url:
        return False
    parts = urlsplit(url)
    asked = parse_qsl(parts.query, keep_blank_values=True)
    return parts.password is not None or any(is_secret(name) for name, _ in asked)


def written_out(options: Mapping[str, str]) -> list[str]:
    """Return the names of options that hold a secret itself, and not the name of a variable."""
    return sorted(name for name, value in options.items() if is_secret(name) and not value.startswith(REFERENCE))
