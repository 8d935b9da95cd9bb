"""Turn a pydantic error into one of ours, which names the place and the allowed values, never the given value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field, ValidationError

from dptext_etl.errors import PolicyError, seam

Epsilon = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False, strict=True)]


class validated(seam):  # noqa: N801  (reads as a statement: `with validated("policy", …):`)
    """Check plain data against a model inside the block."""

    def __init__(self, what: str, known: Iterable[str], of: str = "entries") -> None:
        super().__init__(f"reading the {what}", PolicyError)
        self._what = what
        self._hint = f"{of}: {', '.join(known)}"

    def __exit__(self, kind: Any, exc: BaseException | None, tb: Any) -> None:
        """Raise one `PolicyError` that says what is wrong with each entry."""
        if not isinstance(exc, ValidationError):
            super().__exit__(kind, exc, tb)
            return
        problems = exc.errors(include_input=False, include_url=False)
        problem = "; ".join(_sentence(item["loc"], item["msg"]) for item in problems)
        entries = [".".join(map(str, item["loc"])) for item in problems if item["loc"]]
        self.leave(PolicyError(f"{self._what}: {problem}", self._hint, {"entries": entries}))


def _sentence(loc: tuple[int | str, ...], message: str) -> str:
    where = ".".join(map(str, loc))
    return f"{where}: {message}" if where else message.removeprefix("Value error, ")
