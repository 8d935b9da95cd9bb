"""Roles of columns for a first policy: named by someone, or guessed from names and types."""

import tomllib

import polars as pl
import pytest

from dptext_etl import Policy, _kernel
from dptext_etl.errors import InputError, PolicyError, UsageError
from dptext_etl.runner import init, plan
from dptext_etl.runner.source.guessing import NO_ONE, guess

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
    said = tomllib.loads(init(table, id="opened", subject="ticket", texts=["message", "product"], form="rows"))
    assert (said["id"], said["subject"]) == ("opened", "ticket")
    assert [column["name"] for column in said["column"]] == ["message", "product"]
    assert guess(table, id="ticket", texts=["product"]).others == ("opened", "message", "weight")


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        ({"id": "Ticket"}, r"has no column Ticket, and 6 others(.|\n)*Did you mean 'ticket'\?"),
        ({"id": "row"}, r"has no column row(.|\n)*The columns: ticket, customer, opened, product, message, weight"),
        ({"id": "ticket", "texts": ["weight"]}, "weight is not a column of strings, but of Float64"),
        ({"id": "weight"}, "weight is a column of Float64"),
        ({"id": "ticket", "subject": "ticket"}, "a column has one role"),
    ],
)
def test_a_role_that_a_column_cannot_have_is_refused(table, roles, words):
    with pytest.raises(InputError, match=words):
        guess(table, **roles)


TICKETS = 400


def tickets(path, *, person="Wer", extra=None):
    """400 tickets of 60 people with columns in German, of which only shapes are known, and ids with leading zeros."""
    rows = {
        "Ticket id": [f"{row:05}" for row in range(TICKETS)],
        person: [f"K{row * row % 61:03}" for row in range(TICKETS)],
        "user_timezone": [("Europe/Berlin", "America/Lima", "Asia/Tokyo")[row % 3] for row in range(TICKETS)],
        "Produkt": [("Lampe", "Schuh", "Uhr", "Tisch")[row % 4] for row in range(TICKETS)],
        "Inhalt": [f"Die Lampe {row} brummt seit gestern sehr laut" for row in range(TICKETS)],
        **(extra or {}),
    }
    pl.DataFrame(rows).write_csv(path)
    return str(path)


@pytest.mark.parametrize("person", ["customer no", "Wer"])
def test_a_person_is_found_by_its_name_or_by_shape(tmp_path, person):
    found = guess(tickets(tmp_path / "raw.csv", person=person))
    assert (found.id, found.subject, found.texts) == ("Ticket id", person, ("Inhalt",))
    assert found.label == "Produkt", "a name of a person's trait is no label"
    rows = {role: (column, why) for role, column, why in found.roles()}
    assert ("by its name" if person != "Wer" else "by the shape") in rows["person"][1]
    assert "4 values in 400 rows, 0% null" in rows["label"][1]
    assert not any(value in str(found.roles()) for value in ("K0", "Berlin", "Lampe", "brummt"))


@pytest.mark.parametrize(
    ("extra", "label"),
    [
        ({"agent_name": "ab", "topic": "xyz"}, "topic"),
        ({"status": "ab", "ticket_type": "xyz"}, "ticket_type"),
        ({"owner": "ab", "email": "xy"}, "Produkt"),
        ({"stars": [1, 3, 5]}, "stars"),
        ({"level": [1, 3, 5]}, "Produkt"),
        ({"category": [f"c{number}" for number in range(70)]}, "category"),
    ],
)
def test_a_label_has_a_name_of_labels_or_few_strings_and_never_names_people(tmp_path, extra, label):
    columns = {name: [values[row % len(values)] for row in range(TICKETS)] for name, values in extra.items()}
    found = guess(tickets(tmp_path / "raw.csv", extra=columns), subject=NO_ONE)
    assert found.label == label


@pytest.mark.parametrize("name", ["label", "class"])
def test_a_column_that_is_named_as_labels_is_no_person_by_its_shape(tmp_path, name):
    """150 classes of 400 rows look like persons."""
    other = {name: [f"x{row * 7 % 150}" for row in range(TICKETS)]}
    rows = pl.read_csv(tickets(tmp_path / "raw.csv", extra=other))
    rows.select("Ticket id", "Inhalt", name).write_csv(tmp_path / "raw.csv")
    assert guess(str(tmp_path / "raw.csv")).subject is None


def test_two_columns_that_look_like_people_are_none(tmp_path):
    other = {"Bearbeiter": [f"B{row * 7 % 53:03}" for row in range(TICKETS)]}
    found = guess(tickets(tmp_path / "raw.csv", person="Wer", extra=other))
    assert found.subject is None
    assert ("person", "none", "no column looks like one: records stand for themselves") in found.roles()


def test_no_one_is_a_choice(tmp_path):
    assert guess(tickets(tmp_path / "raw.csv"), subject=NO_ONE).subject is None


def test_few_rows_say_nothing_about_people(tmp_path):
    rows = pl.read_csv(tickets(tmp_path / "raw.csv", person="Wer")).head(99)
    rows.write_parquet(tmp_path / "few.parquet")
    assert guess(str(tmp_path / "few.parquet"), id="Ticket id", texts=["Inhalt"]).subject is None


def test_a_name_that_is_a_value_of_its_column_is_not_written(tmp_path):
    """A file without a header: its first record would be names."""
    cells = [("zzqcellone", "zzqcelltwo is a sentence of a person who writes on")]
    cells += [(f"zzqcell{row % 40}", f"sentence {row} of a person who writes on") for row in range(300)]
    cells += [("zzqcellone", "sentence of a person who writes on once more")] * 3
    (tmp_path / "raw.csv").write_text("\n".join(",".join(row) for row in cells))
    with pytest.raises(InputError) as caught:
        guess(str(tmp_path / "raw.csv"))
    assert "zzqcell" not in str(caught.value)


TOPICS = ("invoices", "delivery", "refund")


@pytest.fixture(scope="module")
def requests(tmp_path_factory):
    """2,400 tickets of 1,200 people, whose topics are an Enum."""
    rows = range(2_400)
    frame = pl.DataFrame(
        {
            "ticket": [f"T-{row:05}" for row in rows],
            "customer": [f"c{row % 1_200}" for row in rows],
            "topic": pl.Series([TOPICS[row % 3] for row in rows], dtype=pl.Enum(TOPICS)),
            "message": [f"My parcel {row} is still not here, please help" for row in rows],
        }
    )
    path = tmp_path_factory.mktemp("requests") / "requests.parquet"
    frame.write_parquet(path)
    _kernel.Secret().write(str(path.parent / "noise.key"))
    return path


FORMS = {
    "rows": ({}, 2_400, 2 * 4.0),
    "shuffled": ({}, 1_200, 1.586),
    "synthetic": ({"labels": "topic=invoices,delivery"}, 1_200, 1.0),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_plan_accepts_the_policy_of_each_form(requests, form):
    given, rows, epsilon = FORMS[form]
    path = requests.parent / f"{form}.toml"
    path.write_text(init(requests, id="ticket", **{"form": form, **given}).replace("everyday-30k-2", "example"))
    policy = Policy.load(path)
    planned = plan(policy)
    assert (planned.refusal, planned.over_cap, planned.rows) == (None, {"records": 0, "units": 0}, rows)
    assert (policy.shuffled is not None, policy.synthetic is not None) == (form == "shuffled", form == "synthetic")
    if policy.synthetic is not None:
        assert policy.synthetic.labels.values == ("invoices", "delivery")
    assert policy.cap.epsilon >= epsilon
    assert policy.records_per_subject == (5 if form == "rows" else 1)


def test_labels_are_named_and_never_taken_from_the_table(requests):
    with pytest.raises(UsageError, match=r"looks like labels(.|\n)*--labels topic=A,B,C(.|\n)*--labels none") as caught:
        init(requests, id="ticket", form="synthetic")
    text = init(requests, id="ticket", form="synthetic", labels="none")
    assert "labels" not in tomllib.loads(text)["synthetic"]
    assert not any(topic in str(caught.value) + text for topic in TOPICS)
    text = init(requests, id="ticket", form="synthetic", labels='topic="lost, or late", billing')
    assert tomllib.loads(text)["synthetic"]["labels"]["values"] == ["lost, or late", "billing"]
    text = init(requests, id="ticket", form="shuffled", labels="topic=billing")
    assert tomllib.loads(text)["shuffled"]["labels"] == {"column": "topic", "values": ["billing"]}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"labels": "topic=a", "form": "rows"}, "the form is rows"),
        ({"form": "rows", "at_most": 9}, "rows have none"),
        ({"form": "shuffled", "labels": "topics=a"}, "Did you mean 'topic'"),
        ({"form": "synthetic", "labels": "topic"}, "COLUMN=A,B,C"),
        ({"form": "synthetic", "labels": "message=a", "texts": ["message"]}, "has one role"),
        ({"form": "synthetic", "labels": "topics=a"}, "Did you mean 'topic'"),
        ({"form": "synthetic", "labels": "topic=a,a"}, "lists a label twice"),
        ({"form": "synthetic", "labels": "topic="}, "must not be empty"),
        ({"form": "shuffled", "texts": ["message", "topic"]}, "has one text column, and there are 2: message, topic"),
    ],
)
def test_what_does_not_fit_the_form_is_refused(requests, given, words):
    with pytest.raises(PolicyError, match=words):
        init(requests, id="ticket", **given)


def test_ids_that_are_not_unique_are_shown_with_others(tmp_path):
    path = tickets(tmp_path / "raw.csv")
    why = {role: why for role, _, why in guess(path, id="Produkt").roles()}
    assert "only 1% of the rows have a unique value" in why["id"]
    assert "others: column 1 100%, column 2" in why["id"]
    rows = pl.read_csv(path)
    rows.select(number="Ticket id", topic="Produkt", Inhalt="Inhalt").write_parquet(tmp_path / "raw.parquet")
    with pytest.raises(InputError, match=r"share of rows with a unique value: number 100%, topic 1%"):
        guess(str(tmp_path / "raw.parquet"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows.clear(), "has no rows"),
        (lambda rows: rows.with_columns(ticket=pl.lit(None, pl.String)), "all ids are null: column ticket"),
        (lambda rows: rows.with_columns(ticket=pl.lit(None)), "all ids are null: column ticket"),
        (lambda rows: rows.with_columns(ticket=pl.lit(None, pl.Date)), "all ids are null: column ticket"),
    ],
)
def test_a_table_without_rows_or_ids_is_refused(tmp_path, requests, change, words):
    change(pl.read_parquet(requests)).write_parquet(tmp_path / "raw.parquet")
    with pytest.raises(InputError, match=words):
        guess(str(tmp_path / "raw.parquet"), id="ticket")
