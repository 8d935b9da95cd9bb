"""`init` writes a policy that works, and names its guesses."""

import json
import tomllib

import polars as pl
import pytest

from dptext_etl.runner import init
from dptext_etl.runner.source.first_policy import Choices, lines_of
from dptext_etl.runner.source.guessing import guess


def guessed(folder, frame, save, name="raw.parquet"):
    save(frame, folder / name)
    text = init(folder / name, form="rows")
    (folder / "privacy.toml").write_text(text)
    return tomllib.loads(text), text


def test_odd_names_are_quoted(tmp_path, reviews, save):
    """No one but the user names such a column: a name like that is not guessed."""
    odd = 'the "text"\\'
    save(reviews().rename({"review": odd, "stars": "é\n"}), tmp_path / "raw.parquet")
    values = tomllib.loads(init(tmp_path / "raw.parquet", texts=[odd], form="rows"))
    assert values["column"][0]["name"] == odd


def test_no_number_of_a_policy_follows_from_values(tmp_path, reviews, save):
    """Other rows, longer texts, equal ids: all entries are the same; only comments hold counts."""
    texts = []
    for place, frame in enumerate(
        (
            reviews(),
            reviews(rows=7).with_columns(review=pl.col("review").repeat_by(500).list.join(" ")),
            reviews().with_columns(id=pl.lit("same"), review=pl.lit(None, pl.String)),
        )
    ):
        (tmp_path / str(place)).mkdir()
        entries = json.dumps(guessed(tmp_path / str(place), frame, save)[0], sort_keys=True)
        texts.append(entries.replace(str(tmp_path / str(place)), ""))
    assert len(set(texts)) == 1
    assert '"epsilon": 20.0' in texts[0]


def test_ids_that_others_know_are_hashed_and_spellings_are_joined(tmp_path, reviews, save):
    number = pl.int_range(pl.len())
    persons = pl.format("Kunde {}{}", number % 20, pl.when(number % 40 < 20).then(pl.lit("")).otherwise(pl.lit(" ")))
    frame = reviews().with_columns(id=pl.format("T-{}", number + 10), user_id=persons)
    values, text = guessed(tmp_path, frame, save)
    assert (values["ids"], values["normalize"]) == ("keyed", ["nfc", "casefold", "strip"])
    assert "40 variants of 20 ids of persons differ in case or blanks" in text
    assert "at most 10^8.69 times as likely" in text
    assert "plus delta" in text
    said = " ".join(lines_of(guess(str(tmp_path / "raw.parquet")), Choices("rows")))
    assert " 16% of the rows that name a person stay" in said  # 2 of 12, rounded down
    plain, _ = guessed(tmp_path, reviews(), save)
    assert (plain["ids"], plain["per_subject"], "normalize" in plain) == ("keep", 5 // len(plain["column"]), False)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["review_id", "customer_id", "reviewText"], ("review_id", "customer_id", ("reviewText",))),
        (["customer_id", "complaint"], ("customer_id", None, ("complaint",))),
        (["key", "author", "title", "body", "comment_text"], ("key", "author", ("body", "comment_text"))),
        (["uuid", "said"], ("uuid", None, ("said",))),
        (["id", "note_id", "note"], ("id", None, ("note",))),
        (["paid", "reviewID", "userId", "customer_feedback"], ("reviewID", "userId", ("customer_feedback",))),
    ],
)
def test_roles_follow_from_names(tmp_path, save, names, found):
    values, _ = guessed(tmp_path, pl.DataFrame({name: ["a", "b"] for name in names}), save)
    assert (values["id"], values.get("subject"), tuple(item["name"] for item in values["column"])) == found
