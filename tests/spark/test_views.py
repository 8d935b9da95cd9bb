"""Views that fix ids and subjects."""

import pytest

from dptext_etl import Ledger
from dptext_etl.errors import InputError, PolicyError
from dptext_etl.spark import guard, register, register_view
from tests.later import later
from tests.policy_files import policy_in

from .film_queries import EXAMPLE, FORMS, ROWS, column

later("pyspark", reason="pyspark is not installed (extra: spark)")


@pytest.fixture
def whole(policy, tmp_path):
    """The policy of a dataset, for views."""
    column = {"name": "review", "mechanism": EXAMPLE, "allow": ["cluster"]}
    facts = {
        "dataset": "films",
        "release": "1",
        "unit": "subject",
        "subject": "user",
        "keep": ["n"],
        "keep_unique": "accepted",
    }
    return policy_in(tmp_path, column, **facts, key=policy.key, sql_function=False)


def test_a_view_fixes_ids_and_subjects(films, policy, whole, expected, tmp_path):
    view = register_view(films, "released_films", table="films", policy=whole, form=FORMS[0])
    assert view.columns == ["id", "n", "review"]
    assert column(films, "SELECT review FROM released_films ORDER BY n") == expected
    assert column(films, "SELECT review FROM released_films ORDER BY n") == expected
    with Ledger.open(whole.ledger.url) as ledger:
        assert ledger.verify().counts["committed"] == len(ROWS)
    assert guard(films.sql("SELECT upper(review) AS r FROM released_films"), policy=whole)
    for query in ("SELECT private_review(review, concat(id, 'x')) FROM films", "SELECT review(review, id) FROM films"):
        films.sql("DROP TEMPORARY FUNCTION IF EXISTS private_review")
        with pytest.raises(Exception, match="UNRESOLVED_ROUTINE"):
            films.sql(query).collect()


def test_a_view_does_not_hide_what_is_wrong_at_its_registration(films, whole):
    for given in (whole, whole.column_policy("review")):
        with pytest.raises(PolicyError, match=r"sql_function = false(.|\n)*register_view"):
            register(films, "private_review", given)
    films.table("films").drop("user").createOrReplaceTempView("without_users")
    with pytest.raises(InputError, match="the source has no column 'user'"):
        register_view(films, "released_films", table="without_users", policy=whole)
    with pytest.raises(PolicyError, match=r"looking for the table 'nope' failed(.|\n)*is its name right"):
        register_view(films, "released_films", table="nope", policy=whole)
    # A second registration would read the view of the first one, and release released texts
    for name in ("films", "FILMS"):
        with pytest.raises(PolicyError, match="the view has the name of its table"):
            register_view(films, name, table="films", policy=whole, charge=False)
    assert column(films, "SELECT review FROM films ORDER BY n") == [row[1] for row in ROWS]


@pytest.mark.parametrize(("column", "kind", "said"), [("id", "double", "record ids"), ("user", "boolean", "subjects")])
def test_a_view_refuses_ids_of_a_type_that_has_no_spelling(films, whole, column, kind, said):
    """At registration: in a query it would fail on a worker, after Spark's retries."""
    plain = "cast(n as double)" if kind == "double" else "n > 2"
    columns = ", ".join(f"{plain} AS {name}" if name == column else name for name in ("id", "review", "n", "user"))
    films.sql(f"SELECT {columns} FROM films").createOrReplaceTempView("odd_films")
    for charge in (True, False):
        with pytest.raises(InputError, match=rf"{said} \(column '{column}'\)(.|\n)*cast it first"):
            register_view(films, "released_films", table="odd_films", policy=whole, charge=charge)
