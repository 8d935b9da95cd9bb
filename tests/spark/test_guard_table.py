"""The table of docs/spark.md has the guard's answer to each query, and each line that it proposes passes.

`MORE` has queries for which the page has no room.
"""

import pytest

from dptext_etl.errors import GateError
from dptext_etl.spark import guard, register
from tests.later import later

from ..guard_tables import rows
from .films import FORM

later("pyspark", reason="pyspark is not installed (extra: spark)")


MORE = [
    (
        "SELECT id, private_review(concat_ws(' ', n, left(review, 500)), id) AS r FROM films",
        "passes",
        "",
    ),
    (
        "SELECT id, private_review(CASE WHEN review <> 'n/a' THEN review ELSE '' END, id) AS r FROM films",
        "passes",
        "",
    ),
    (
        "SELECT id, private_review(CASE WHEN n > 3 THEN review END, id) AS r FROM films",
        "passes",
        "",
    ),
    (
        "SELECT DISTINCT id, private_review(review, id) AS r FROM films",
        "passes",
        "",
    ),
    (
        "SELECT id, private_review(CASE WHEN review LIKE '%bad%' THEN review END, id) AS r FROM films",
        "refused: may be null although its source is not",
        "SELECT id, private_review(CASE WHEN review LIKE '%bad%' THEN review ELSE '' END, id) AS r FROM films",
    ),
    (
        "SELECT count(private_review(get_json_object(review, '$.text'), id)) FROM films",
        "refused: may be null although its source is not",
        "SELECT count(private_review(coalesce(get_json_object(review, '$.text'), ''), id)) FROM films",
    ),
    (
        "SELECT private_review(review, id) AS a, private_review(quote(review), id) AS b FROM films",
        "refused: several forms",
        "SELECT private_review(quote(review), id) AS b FROM films",
    ),
    (
        "SELECT id, private_review(concat(review, rand()), id) AS r FROM films",
        "refused: its own row",
        "SELECT id, private_review(concat(review, n), id) AS r FROM films",
    ),
    (
        "SELECT id, private_review(max(review) OVER (PARTITION BY n), id) AS r FROM films",
        "refused: its own row",
        "SELECT id, private_review(review, id) AS r FROM films",
    ),
    (
        "SELECT id, private_review(review, id) AS r FROM (SELECT DISTINCT * FROM films)",
        "refused: decides which rows are distinct",
        "SELECT DISTINCT id, private_review(review, id) AS r FROM films",
    ),
]


@pytest.mark.parametrize(("query", "said", "instead"), [*rows("spark.md"), *MORE])
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
