"""Handle keys by reference, and the ids of records and subjects (docs/spec/stream.md#record-id).

Plans, logs and ledgers hold the name of a key; only the kernel holds the key itself.

A balance belongs to the canonical string of an id. Another type, or other fields, would give the same person another
string and a new balance. So a ledger pins the form of an id: its type, and the ordered field names of a composite.
Later ids are brought into the pinned order. Subjects that are strings may be normalized before, so that variants of an
id count as one (docs/spec/stream.md#normalized-subjects).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import arrow_kind
from dptext_etl.errors import InputError, KeyReferenceError, bare, counted
from dptext_etl.object_stores import holds_password

if TYPE_CHECKING:
    import polars as pl

REFERENCE_FORMS = (
    '"env:NAME" (64 hex digits in an environment variable) or "file:PATH" (the same in a file of mode 0600)'
)
_HOW = "make a key once with `dptext key new PATH` and write file:PATH"
_MAY_BE_A_KEY = re.compile(r"[0-9a-fA-F]{64}[^/]*/?\Z")
_VARIABLE = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)


def reference(value: Any) -> str:
    """Return `value` if it is the name of a key and not a key itself.

    A policy checks this when it is built, before it can be printed or sent. The name is resolved later, perhaps on
    another machine; only then a missing key is noticed.
    """
    if not isinstance(value, str):
        msg = f"a key is given by reference, got {type(value).__name__}; allowed: {REFERENCE_FORMS}"
        raise KeyReferenceError(msg, _HOW)
    if _MAY_BE_A_KEY.search(value):
        msg = "a key reference names a variable or a file; got 64 hex digits, which may be a key itself"
        raise KeyReferenceError(msg, f"treat that key as exposed to anyone who saw it; {_HOW}")
    kind, _, name = value.partition(":")
    if kind == "file" and name.strip():
        return value
    from dptext_etl.key_providers import BUILT_IN, installed

    if kind == "env" and _VARIABLE.fullmatch(name):
        if "SECRET" not in name.upper():
            msg = "the environment variable of a key needs SECRET in its name"
            raise KeyReferenceError(msg, "engines redact variables by that word; name it like DPTEXT_SECRET")
    elif name.strip() and kind not in BUILT_IN and kind in installed():
        if holds_password(value) or holds_password(name):
            msg = "a key reference holds a password, and policies and plans show it"
            raise KeyReferenceError(msg, "give only the name of the key; its provider signs in by itself")
    else:
        more = "".join(f', or "{scheme}:NAME"' for scheme in sorted(installed()))
        msg = f"a key is given by reference, got something else; allowed: {REFERENCE_FORMS}{more}"
        raise KeyReferenceError(msg, f"never write the key itself; {_HOW}")
    return value


def resolve(name: str) -> _kernel.Secret:
    """Return the secret that a reference names: "env:NAME", "file:PATH", or one of a provider; resolved only once."""
    return _kernel.Secret.resolve(reference(name))


def throwaway(cfg: str) -> _kernel.ReleaseKey:
    """Return a release key that is stored nowhere, for previews and measurements; no one can repeat its draws."""
    return _kernel.ReleaseKey(_kernel.Secret(), "thrown away", "text", "thrown away", cfg)


@dataclass(frozen=True)
class RecordKeys:
    """Hold the keys of a batch: one release key, and the canonical id of every record."""

    release: _kernel.ReleaseKey  # opaque key of (dataset, column, release, configuration)
    ids: pa.Array  # canonical record ids, strings, as many as the texts
    nonce: int = 0  # number of the deliberate extra release of a record under one release name, from 0

    @bare
    def of(self, texts: pa.Array) -> pa.Array:
        """Return the key of every record, fixed-size binary of 32 bytes; it also depends on the record's text."""
        return pa.array(_kernel.record_keys(self.release, self.ids, texts, self.nonce))


def id_type(dtype: pa.DataType) -> str:
    """Return the kind of a record id; the ledger pins it per dataset and column (docs/spec/stream.md#record-id).

    It is "uuid" or a key of `_ID_TYPES`; ids of other types are refused.
    """
    if pa.types.is_dictionary(dtype):
        dtype = dtype.value_type
    if isinstance(dtype, pa.BaseExtensionType) and dtype.extension_name == "arrow.uuid":
        return "uuid"
    for name, matches in _ID_TYPES.items():
        if any(match(dtype) for match in matches) and not (name == "timestamp" and dtype.tz is None):
            return name
    allowed = ", ".join(_ID_TYPES)
    raise InputError(
        f"record ids of type {arrow_kind(dtype)} are not allowed; allowed: {allowed}", "cast the id column first"
    )


_ID_TYPES = {
    "string": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    "integer": (pa.types.is_integer,),
    "decimal": (pa.types.is_decimal,),
    "date": (pa.types.is_date,),
    "timestamp": (pa.types.is_timestamp,),
    "bytes": (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view),
    "composite": (pa.types.is_struct,),
}


@bare
def canonical_ids(ids: pa.Array, *, by_name: bool = False) -> pa.Array:
    """Write record ids as strings, in the canonical form of the specification (docs/spec/stream.md#record-id).

    Nulls and other types are refused. With `by_name`, the fields of composite ids are in the order of their names.
    """
    id_type(ids.type)
    if ids.null_count:
        raise InputError(
            counted(ids.null_count, "record id is null", "record ids are null"), "every record needs an id of its own"
        )
    return pa.array(_kernel.canonical_ids(ids, by_name))


def canonical_series(ids: pl.Series) -> pl.Series:
    """Write a column of record ids in the canonical form, under a name that methods of a series read as no pattern."""
    import polars as pl

    if ids.dtype == pl.String and not ids.null_count():
        return ids.alias("id")  # strings are written as they are
    return pl.Series("id", canonical_ids(ids.to_arrow()), dtype=pl.String)


COMPOSITE = "composite"
Normalization = Literal["nfc", "casefold", "strip"]


@dataclass(frozen=True)
class IdForm:
    kind: str  # the type, as `id_type` names it
    fields: tuple[tuple[str, IdForm], ...] = ()  # of a composite, in the order of its canonical form, if known
    normalize: tuple[Normalization, ...] = ()  # how strings were normalized

    @classmethod
    def of(cls, dtype: pa.DataType, normalize: tuple[Normalization, ...] = ()) -> Self:
        kind = id_type(dtype)
        if normalize and kind != "string":
            msg = f"normalize needs subjects that are strings, got {kind}"
            raise InputError(msg, "leave normalize out, or cast the subject column to strings")
        if kind != COMPOSITE:
            return cls(kind, (), normalize)
        if pa.types.is_dictionary(dtype):
            dtype = dtype.value_type
        fields = tuple((field.name, IdForm.of(field.type)) for field in dtype)
        if len({name for name, _ in fields}) < len(fields):
            raise InputError("two fields of a composite id have one name", "give every field its own name")
        return cls(kind, fields)

    @classmethod
    def parse(cls, written: Any) -> Self:
        if isinstance(written, str):
            return cls(written)
        if isinstance(written, dict):
            return cls(written["kind"], (), tuple(written["normalize"]))
        return cls(COMPOSITE, tuple((name, IdForm.parse(form)) for name, form in written))

    def written(self) -> Any:
        """Return the form as JSON can hold it: the kind, a list of names and forms, or an object where normalized."""
        if self.normalize:
            return {"kind": self.kind, "normalize": list(self.normalize)}
        return [[name, form.written()] for name, form in self.fields] if self.fields else self.kind

    def __str__(self) -> str:
        if not self.fields:
            return f"{self.kind} (normalized: {', '.join(self.normalize)})" if self.normalize else self.kind
        return f"composite of {counted(len(self.fields), 'field')} ({', '.join(str(form) for _, form in self.fields)})"

    def unordered(self) -> Self:
        """Return the form with the fields of every composite in the order of their names."""
        fields = sorted(self.fields, key=lambda field: field[0])
        return type(self)(self.kind, tuple((name, form.unordered()) for name, form in fields), self.normalize)

    def orders(self, other: IdForm) -> bool:
        """Return whether ids of the other form only need their fields in another order to have this one."""
        return self != other and self.unordered() == other.unordered()


def arranged(ids: pa.Array, form: IdForm | None) -> pa.Array:
    """Bring the fields of composite ids into the order of a form; ids that it does not order stay as they are."""
    if form is None or not form.orders(IdForm.of(ids.type)):
        return ids
    if pa.types.is_dictionary(ids.type):
        ids = ids.dictionary_decode()
    fields = [arranged(ids.field(name), inner) for name, inner in form.fields]
    return pa.StructArray.from_arrays(fields, [name for name, _ in form.fields], mask=ids.is_null())


def normalized(ids: pa.Array, how: Sequence[Normalization]) -> pa.Array:
    """Normalize subjects before they are hashed; nulls stay."""
    if not how:
        return ids
    IdForm.of(ids.type, tuple(how))
    coded = ids.cast(pa.large_string()).dictionary_encode()
    spelled = [spelling(text, how) for text in coded.dictionary.to_pylist()]
    return pa.array(spelled, pa.large_string()).take(coded.indices)


def spelling(text: str | None, how: Sequence[Normalization]) -> str | None:
    if text is None:
        return None
    text = unicodedata.normalize("NFC", text) if "nfc" in how else text
    text = text.casefold() if "casefold" in how else text
    text = unicodedata.normalize("NFC", text) if "nfc" in how else text
    return text.strip() if "strip" in how else text
