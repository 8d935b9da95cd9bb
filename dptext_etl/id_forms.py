"""Describe the form of an id: its type, and the ordered field names of a composite (docs/spec/stream.md#record-id).

A balance belongs to the canonical string of an id. Another type, or other fields, would give the same person another
string and a new balance. So a ledger pins forms, and later ids are brought into the pinned order. Subjects that
are strings may be normalized before, so that variants of an id count as one (docs/spec/stream.md#normalized-subjects).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import pyarrow as pa

from dptext_etl.errors import InputError, counted
from dptext_etl.keys import id_type

COMPOSITE = "composite"
Normalization = Literal["nfc", "casefold", "strip"]


@dataclass(frozen=True)
class IdForm:
    kind: str  # the type, as `keys.id_type` names it
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
