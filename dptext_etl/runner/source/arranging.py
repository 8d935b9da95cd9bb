"""Bring composite ids into the order of fields that the ledger pinned, so that every record and person keeps its id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import polars as pl

from dptext_etl.id_forms import IdForm, Normalization
from dptext_etl.ledger import IdForms, Ledger, Scope
from dptext_etl.ledger.storage.store import ledger_exists
from dptext_etl.policy import Policy


def in_pinned_order(frame: pl.LazyFrame, schema: Mapping[str, pl.DataType], policy: Policy) -> pl.LazyFrame:
    """Return a frame whose composite ids have their fields in the pinned order; other columns stay."""
    orders = pinned_orders({name: form_of(schema[name]) for name in composites(schema, policy)}, policy)
    return frame.with_columns(pl.col(name).cast(_ordered(schema[name], form)) for name, form in orders.items())


def composites(schema: Mapping[str, pl.DataType], policy: Policy) -> list[str]:
    """Return the columns of ids that hold composites."""
    names = dict.fromkeys(filter(None, (policy.id, policy.subject)))
    return [name for name in names if isinstance(schema.get(name), pl.Struct)]


def pinned_orders(found: Mapping[str, IdForm], policy: Policy) -> dict[str, IdForm]:
    """Return the pinned forms of columns whose ids only need their fields in another order."""
    if not found or not ledger_exists(policy.ledger.url):
        return {}
    with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
        pinned = ledger.pinned_forms(Scope.of(policy), list(policy.text_columns))
    roles = {policy.subject: "subject", policy.id: "record"}
    wanted = {name: pinned.get(roles[name]) for name in found}
    return {name: form for name, form in wanted.items() if form is not None and form.orders(found[name])}


def form_of(dtype: pl.DataType, normalize: tuple[Normalization, ...] = ()) -> IdForm:
    """Return the form of the ids of a type of Polars."""
    return IdForm.of(pl.Series([], dtype=dtype).to_arrow().type, normalize)


def forms_of(schema: Mapping[str, pl.DataType], policy: Policy) -> IdForms:
    """Return the forms of the ids of a table, as the ledger pins them."""
    subject = None if policy.unit == "record" or policy.subject is None else policy.subject
    form = None if subject is None else form_of(schema[subject], policy.normalize)
    return IdForms(form_of(schema[policy.id]), form, policy.id_columns)


def _ordered(dtype: Any, form: IdForm) -> pl.DataType:
    """Return the same type with its fields in the order of a form; Polars casts fields by name."""
    if not isinstance(dtype, pl.Struct):
        return cast("pl.DataType", dtype)
    inner = {field.name: field.dtype for field in dtype.fields}
    return pl.Struct({name: _ordered(inner[name], part) for name, part in form.fields})
