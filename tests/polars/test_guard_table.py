"""The table of docs/polars.md says what the guard does with each plan, and each line that it proposes passes."""

import polars as pl
import pytest

from dptext_etl.errors import GateError

from ..docs.guard_tables import rows
from .guarded import FRAME, guard, release

pytestmark = pytest.mark.usefixtures("secret")


@pytest.mark.parametrize(("plan", "said", "instead"), rows("polars.md"))
def test_the_table_holds(policy, plan, said, instead):
    names = {"pl": pl, "raw": FRAME.lazy(), "review": pl.col("review"), "release": lambda text: release(policy, text)}
    made = eval(plan, names)
    if said.startswith("passes"):
        assert guard(made, policy) is made
        made.collect()
    else:
        with pytest.raises(GateError, match=said.removeprefix("refused: ")):
            guard(made, policy)
        guard(eval(instead, names), policy).collect()
