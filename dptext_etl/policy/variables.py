"""Keep the secrets of a policy apart: no option of a store may name what holds a key or the ledger's URL."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dptext_etl import _kernel, keys
from dptext_etl.errors import KeyReferenceError
from dptext_etl.store_options import KEY_DIGITS, variable_of

if TYPE_CHECKING:
    from dptext_etl.policy.dataset_policy import Policy


def require_other_variables(policy: Policy) -> None:
    """Refuse options of stores and catalogs that name the variable of a key or of the ledger, or one of equal value."""
    named = variable_of(policy.ledger.url)
    url = policy.ledger.url if named is None else os.environ.get(named)
    references = [policy.key, policy.ledger.id_key or f"file:{(url or '').removeprefix('sqlite:///')}.id.key"]
    own = {named, *map(variable_of, references)}
    catalog = {} if policy.table is None else policy.table.catalog
    for option, value in [*policy.storage_options.items(), *catalog.items()]:
        variable = variable_of(value)
        if variable is None:
            continue
        found = os.environ.get(variable, "")
        if variable in own or (found and found == url) or any(_holds(found, reference) for reference in references):
            msg = f"{option} names a variable that holds the noise key, the id key, or the URL of the ledger"
            raise ValueError(f"{msg}, and the store would get it; name the variable of this credential")


def _holds(value: str, reference: str) -> bool:
    """Return whether a value is the key of a reference; a key that is not here is no value of this environment."""
    if not KEY_DIGITS.fullmatch(value):
        return False
    try:
        key = keys.resolve(reference)
    except KeyReferenceError:
        return False
    other = _kernel.Secret.from_bytes(bytes.fromhex(value.strip()))
    return _kernel.fingerprint(key, "") == _kernel.fingerprint(other, "")
