"""List the hosts that a run of a policy contacts, so that its reader decides before the first run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from dptext_etl.key_providers import BUILT_IN
from dptext_etl.store_options import CATALOG, host_of, hosts, variable_of

if TYPE_CHECKING:
    from dptext_etl.policy.dataset_policy import Policy

_HUB = "huggingface.co"


def contacted(policy: Policy) -> list[str]:
    """Return "entry: host" for every host or store that a run contacts; "env:NAME" where a variable names it."""
    corpus = None if policy.synthetic is None else policy.synthetic.mechanism.corpus
    places = {"source": policy.source, "sink": policy.sink, "staging": policy.staging, "corpus": corpus}
    places["ledger.anchors"] = policy.ledger.anchors
    found = [f"{entry}: {_store(place)}" for entry, place in places.items() if place and _remote(place)]
    found += [f"storage_options.{name}: {_host(url)}" for name, url in hosts(policy.storage_options).items()]
    if policy.table is not None and policy.table.catalog:
        catalog = policy.table.catalog
        found += [f"table.catalog.{name}: {_host(url)}" for name, url in hosts(catalog, CATALOG).items()]
        if "uri" not in catalog:
            found.append(f"table.catalog: {catalog.get('type', 'the one')} of this environment")
    url = policy.ledger.url
    if variable_of(url) is not None or (not url.startswith("sqlite:") and "://" in url):
        found.append(f"ledger.url: {_host(url)}")
    for entry, reference in (("key", policy.key), ("ledger.id_key", policy.ledger.id_key)):
        scheme = (reference or "file:").partition(":")[0]
        if scheme not in BUILT_IN:
            found.append(f"{entry}: the installed plug-in {scheme}")
    for column in policy.columns:
        parts: list[BaseModel] = [column.mechanism, *column.postprocess]
        for name, value in (item for part in parts for item in _public_inputs(part)):
            found.append(f"column {column.name}, {name}: {value}")
    return found


def _remote(place: str) -> bool:
    return "://" in place and not place.startswith("file:")


def _store(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def _host(url: str) -> str:
    """Return the host of a URL, or whatever is in its place, without the user."""
    if variable_of(url) is not None:
        return url
    return host_of(url) or url.partition("://")[2].partition("/")[0].rpartition("@")[2] or "the client's own setting"


def _public_inputs(part: BaseModel) -> Iterator[tuple[str, str]]:
    """Yield the public inputs of a mechanism that are fetched: from a store, or from a hub if they are not here."""
    hub: frozenset[str] = getattr(part, "hub_fields", frozenset())
    for name in type(part).model_fields:
        value = getattr(part, name)
        if isinstance(value, BaseModel):
            yield from _public_inputs(value)
        elif isinstance(value, str) and _remote(value):
            yield name, _store(value)
        elif name == "model" and name in hub and isinstance(value, str) and not Path(value).exists():
            yield name, f"{_HUB}, unless {value} is on this machine"
