"""The table of docs/spark.md has the guard's answer to each query, and each line that it proposes passes."""

import pytest

from dptext_etl.errors import GateError
from dptext_etl.spark import guard, register
from tests.later import later

from ..guard_tables import rows
from .films import FORM

later("pyspark", reason="pyspark is not installed (extra: spark)")


@pytest.mark.parametrize(("query", "said", "instead"), rows("spark.md"))
def test_the_table_holds(films, policy, query, said, instead):
    allowed = policy.mechanism.guarantee.disclosures
    policy = policy.model_copy(update={"allow": allowed})
    register(films, "private_review", policy, form=FORM)
    if said.startswith("passes"):
        guard(films.sql(query), policy=policy, id="id")
    else:
        with pytest.raises(GateError, match=said.removeprefix("refused: ")) as caught:
            guard(films.sql(query), policy=policy, id="id")
        assert "\nHint: " in str(caught.value)
        guard(films.sql(instead), policy=policy, id="id")
