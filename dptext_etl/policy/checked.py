"""Define the base of all parts of a policy: frozen, without unknown entries, and checked whenever one is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from dptext_etl import keys
from dptext_etl.errors import PolicyError
from dptext_etl.validation import validated

Name = Annotated[str, Field(min_length=1, max_length=200)]
KeyReference = Annotated[str, BeforeValidator(keys.reference)]
"""The name of a key. A policy refuses a key itself when it is built, so that no one can print or send one with it."""


class Checked(BaseModel):
    """Plain data that is checked however it is made, also as a copy."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    what: ClassVar[str] = "policy"
    """Noun for this part of a policy in messages."""
    renamed: ClassVar[Mapping[str, str]] = {}
    """Entries that were renamed, as a map from old to new names."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_old_names(cls, values: Any) -> Any:
        """Refuse an entry under its old name, and name the new one."""
        for old, new in cls.renamed.items():
            if isinstance(values, Mapping) and old in values:
                raise PolicyError(f"{cls.what}: the entry `{old}` has another name now", f"write `{new}` instead")
        return values

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Show the entries that differ from their defaults."""
        fields = type(self).model_fields
        for name, value in super().__repr_args__():
            if name not in fields or value != fields[name].get_default(call_default_factory=True):
                yield name, value

    @classmethod
    def entries(cls) -> list[str]:
        """Return the names of the entries in a policy file."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    @classmethod
    def checking(cls) -> validated:
        """Return a context that turns wrong entries into one `PolicyError`."""
        return validated(cls.what, cls.entries())

    @classmethod
    def model_construct(cls, _fields_set: set[str] | None = None, **values: Any) -> Self:  # type: ignore[override]
        """Check the entries like every other constructor, so that no unchecked policy can be printed or sent."""
        with cls.checking():
            return cls.model_validate(values)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy the object, with other entries if given; they are checked like those of a new policy."""
        if not update:
            return super().model_copy(deep=deep)
        known = type(self).model_fields
        entries = {**{name: getattr(self, name) for name in self.model_fields_set}, **update}
        with self.checking():
            return type(self).model_validate(
                {(known[name].alias or name) if name in known else name: value for name, value in entries.items()}
            )
