"""The table of docs/polars.md has the guard's answer to each plan, and each line that it proposes passes."""

import polars as pl
import pytest

from dptext_etl.errors import GateError

from ..guard_tables import rows
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
        with pytest.raises(GateError, match=said.removeprefix("refused: ")) as caught:
            guard(made, policy)
        assert "\nHint: " in str(caught.value)
        guard(eval(instead, names), policy).collect()


def test_a_published_table_is_added_below_a_guarded_release(policy):
    """It names its column as the raw one, so the message says what to write."""
    released = FRAME.lazy().with_columns(release(policy, pl.col("review")))
    published = released.collect().lazy()
    with pytest.raises(GateError, match=r"guard the release, then add the table"):
        guard(pl.concat([published, released]), policy)
    assert pl.concat([published, guard(released, policy)]).collect().height == 2 * FRAME.height


REFUSED = {
    "as they are": lambda lf: lf,
    "distinct": lambda lf: lf.unique(),
    "a function of frames": lambda lf: lf.map_batches(lambda frame: frame),
    "an explode": lambda lf: lf.select(pl.all().reshape((-1, 1)).arr.to_list()).explode(pl.all()),
    "a filter": lambda lf: lf.filter(pl.all_horizontal(pl.all() != "")),
    "an order": lambda lf: lf.sort(pl.all()),
    "a group": lambda lf: lf.group_by(pl.all()).agg(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_names_of_columns_that_were_texts_are_not_quoted(policy, name):
    """A pivot by the raw text: only the source's raw column is named."""
    texts = FRAME["review"].drop_nulls().unique().to_list()
    wide = FRAME.lazy().select(**{text: pl.col("review").filter(pl.col("review") == text).first() for text in texts})
    with pytest.raises(GateError, match="raw text of 'review'") as caught:
        guard(REFUSED[name](wide), policy)
    assert not any(text in str(caught.value) for text in texts)
