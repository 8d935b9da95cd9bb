"""Define parts of a policy: how CSV files are written, the ledger that records spends, the cap of a unit."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveInt, ValidationInfo, field_validator, model_validator

from dptext_etl.policy.checked import Checked, KeyReference, Name
from dptext_etl.policy.secrets import holds_password

Amount = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
"""A finite number above 0; `True` is none."""


class DagsterSpec(Checked):
    """What Dagster alone reads of a policy.

    Attributes:
        tags: Tags of the staging step and of the job's runs, such as "dagster-k8s/config": strings or tables.
    """

    what: ClassVar[str] = "[dagster]"

    tags: dict[str, Any] = Field(default_factory=dict)


class CsvSpec(Checked):
    """Say how the CSV files of the source are written; their first line has the names of the columns.

    Attributes:
        separator: The character between the fields, such as ";" or a tab.
        encoding: "utf-8", "utf-16", "cp1252" or "latin-1".
        quote: The character around fields that hold a separator or a line break; "" where there is none.
    """

    what: ClassVar[str] = "[csv]"

    separator: str = ","
    encoding: Literal["utf-8", "utf-16", "cp1252", "latin-1"] = "utf-8"
    quote: str = '"'

    @field_validator("separator", "quote")
    @classmethod
    def _one_character(cls, given: str, info: ValidationInfo) -> str:
        empty = info.field_name == "quote" and not given
        if not empty and (len(given) != 1 or not given.isascii() or given.isalnum() or given in "\n\r"):
            msg = "must be one ASCII character, and no letter, digit or line break"
            raise ValueError(msg)
        return given

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if self.separator == self.quote:
            msg = "separator and quote must differ"
            raise ValueError(msg)
        return self


PLAIN_CSV = CsvSpec()
"""UTF-8 with commas."""


class LedgerSpec(Checked):
    """Name the ledger, and the key under which it stores ids.

    Attributes:
        url: "sqlite:///PATH", a path, "postgresql://HOST/DATABASE", or "env:NAME", the variable that holds the URL. It
            holds no password, since a policy may be printed.
        id_key: Reference to the key of the ids; by default the file next to a SQLite ledger.
        anchors: Folder, apart from the ledger, that remembers its last head, so that a lost or restored ledger is
            noticed; writers on several machines share it. That of `DPTEXT_ANCHORS` if absent, else one of this user's
            state.
    """

    url: str
    id_key: KeyReference | None = None
    anchors: str | None = None

    @field_validator("url")
    @classmethod
    def _no_password(cls, url: str) -> str:
        if holds_password(url):
            msg = 'the URL holds a password; put it into a variable: url = "env:DPTEXT_LEDGER_SECRET_URL"'
            raise ValueError(msg)
        return url


class Retention(Checked):
    """What `dptext clean` leaves of what neither readers nor runs need; without a setting, it leaves everything.

    Attributes:
        versions: Newest versions whose published files stay, the current one among them.
        staging_days: Days after which rows that were staged and never published go.
        quarantine_days: Days after which the lists of records over the cap go.
        kept_days: Days after which the kept bytes of a model's release go: a later run of it could not replay them.
    """

    versions: PositiveInt | None = None
    staging_days: NonNegativeFloat | None = None
    quarantine_days: NonNegativeFloat | None = None
    kept_days: NonNegativeFloat | None = None


class Cap(Checked):
    """Limit the spends of a unit in a scope, which is (dataset or group, period) and never the release.

    Attributes:
        measure: "pure" adds epsilons; "zcdp" adds rho; "approx" adds (epsilon, delta).
        epsilon: The cap, for "pure" and "approx".
        rho: The cap, for "zcdp".
        delta: The cap's delta, for "approx".
        period: Name of the period that the cap covers, such as "2026".
        group: Name that datasets share if their spends add up; by default the dataset itself.
    """

    measure: Literal["pure", "zcdp", "approx"] = "pure"
    epsilon: Amount | None = None
    rho: Amount | None = None
    delta: Annotated[Amount, Field(lt=1)] | None = None
    period: Name = "all"
    group: Name | None = None

    @model_validator(mode="after")
    def _amounts(self) -> Self:
        wanted = {"pure": {"epsilon"}, "zcdp": {"rho"}, "approx": {"epsilon", "delta"}}[self.measure]
        given = {name for name in ("epsilon", "rho", "delta") if getattr(self, name) is not None}
        if given != wanted:
            msg = f'a cap of measure "{self.measure}" takes {" and ".join(sorted(wanted))}'
            raise ValueError(msg)
        return self
