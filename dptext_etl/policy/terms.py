"""Define two parts of a policy: the ledger that records spends, and the cap of a unit."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveInt, field_validator, model_validator

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
