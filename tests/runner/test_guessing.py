"""Roles of columns for a first policy: named by someone, or guessed from names and types."""

import tomllib

import pytest

from dptext_etl.errors import InputError
from dptext_etl.runner import init
from dptext_etl.runner.source.guessing import guess

TABLE = """\
ticket,customer,opened,product,message,weight
1,c1,2026-01-02,lamp,It hums,0.5
2,c2,2026-01-03,shoe,Too small,1.5
"""


@pytest.fixture
def table(tmp_path):
    (tmp_path / "tickets.csv").write_text(TABLE)
    return str(tmp_path / "tickets.csv")


def test_a_table_whose_id_has_another_name_is_told_how_to_name_it(table):
    with pytest.raises(InputError, match=r"named like an id(.|\n)*dptext init --id"):
        guess(table)
    found = guess(table, id="ticket")
    assert (found.id, found.subject, found.texts) == ("ticket", "customer", ("message",))


def test_named_roles_are_in_the_policy(table):
    said = tomllib.loads(init(table, id="opened", subject="ticket", texts=["message", "product"]))
    assert (said["id"], said["subject"]) == ("opened", "ticket")
    assert [column["name"] for column in said["column"]] == ["message", "product"]
    assert guess(table, id="ticket", texts=["product"]).others == ("column 3", "column 5", "column 6")


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        ({"id": "Ticket"}, "has no column Ticket, and 6 others"),
        ({"id": "ticket", "texts": ["weight"]}, "weight is no column of strings, but of Float64"),
        ({"id": "weight"}, "weight is a column of Float64"),
        ({"id": "ticket", "subject": "ticket"}, "a column has one role"),
    ],
)
def test_a_role_that_a_column_cannot_have_is_refused(table, roles, words):
    with pytest.raises(InputError, match=words):
        guess(table, **roles)
