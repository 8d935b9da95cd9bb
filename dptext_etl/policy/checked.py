"""The base of everything that a policy is made of: frozen, without unknown entries, checked whenever it is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from dptext_etl import keys
from dptext_etl.errors import PolicyError
from dptext_etl.validation import validated

Name = Annotated[str, Field(min_length=1, max_length=200)]
KeyReference = Annotated[str, BeforeValidator(keys.reference)]
"""The name of a key; a key itself is refused where a policy is built, so that none can be printed or sent with it."""


class Checked(BaseModel):
    """Plain data that is checked in every way to make it, copies included."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    what: ClassVar[str] = "policy"
    """What a refusal calls it."""
    renamed: ClassVar[Mapping[str, str]] = {}
    """Entries that had another name once: old name to new name."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_old_names(cls, values: Any) -> Any:
        """Refuse an entry by its old name, and say the new one."""
        for old, new in cls.renamed.items():
            if isinstance(values, Mapping) and old in values:
                raise PolicyError(f"{cls.what}: the entry `{old}` has another name now", f"write `{new}` in its place")
        return values

    @classmethod
    def entries(cls) -> list[str]:
        """Return the names of the entries, as a policy file writes them."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    @classmethod
    def checking(cls) -> validated:
        """Return a block that says in one sentence of ours what is wrong with entries."""
        return validated(cls.what, cls.entries())

    @classmethod
    def model_construct(cls, _fields_set: set[str] | None = None, **values: Any) -> Self:  # type: ignore[override]
        """Check like any other way to make one: what is printed and sent is never built unchecked.

        Raises:
            PolicyError: Unknown entries, or values out of range.
        """
        with cls.checking():
            return cls.model_validate(values)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy, with other entries if given: they are checked as those of a new policy are.

        Args:
            update: Entries of the copy that differ.
            deep: Copy what the entries hold, too; only where none differ.

        Raises:
            PolicyError: Unknown entries, or values out of range.
        """
        if not update:
            return super().model_copy(deep=deep)
        known = type(self).model_fields
        entries = {**{name: getattr(self, name) for name in self.model_fields_set}, **update}
        with self.checking():
            return type(self).model_validate(
                {(known[name].alias or name) if name in known else name: value for name, value in entries.items()}
            )
