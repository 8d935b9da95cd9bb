"""Release a text expression: the typed function next to the namespace `.dptext`."""

from __future__ import annotations

import polars as pl

from dptext_etl.errors import bare
from dptext_etl.polars.namespace import ExprNamespace
from dptext_etl.policy import PolicyLike


@bare
def privatize(
    text: pl.Expr | str,
    policy: PolicyLike,
    *,
    id: pl.Expr | str,  # noqa: A002  (the argument's name is the column's role)
    spend: bool = False,
) -> pl.Expr:
    """Release a text column under differential privacy: the same expression as `pl.col(text).dptext.privatize(…)`.

    Args:
        text: The text column, by name or as an expression.
        policy: The column's policy; if it names no column, it takes the expression's root column. Or a policy that has
            the root column, or the path of its file.
        id: Record ids: unique, without nulls, the same in every run. An id with two texts is refused where one batch
            holds both: always in an eager frame, by chance in a lazy one, whose engine takes rows in pieces.
            Structs give other texts here than in a run (docs/spec/stream.md#composite-ids).
        spend: Return `Struct[text, positions, epsilon, delta]`, the declared pair of each record.

    Returns:
        As many strings as texts, null if the text is null; or the struct.

    Raises:
        PolicyError: The expression stands for several columns, or for another column than the policy.
    """
    expression = pl.col(text) if isinstance(text, str) else text
    return ExprNamespace(expression).privatize(policy, id=id, spend=spend)
