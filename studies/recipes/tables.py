"""Turn a download of yours into a table of the papers: `python -m recipes NAME DOWNLOAD OUT.parquet`.

Each recipe reads a file as its source publishes it and returns columns text, (text2,) label, attribute, and split, with
the filters, lengths, and splits that the papers state. Nothing is downloaded. `frontier.reproduce --tables` reads OUT's
folder.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from recipes.tasks import TASKS

SEED = 42
"""Seed of the split of paper 002; the others state none."""
POSITIVE, NEGATIVE = "positive", "negative"
AMAZON = (
    *("Digital_Video_Games", "Electronics", "Lawn_and_Garden", "Major_Appliances"),
    *("Mobile_Apps", "Office_Products", "Wireless"),
)
"""Categories of paper 003."""
PUBLIC = 100_000
"""Texts of C4 in paper 002."""
LONGEST = 20
"""Tokens (between blanks) of a review of paper 003's Amazon set."""


def trustpilot(path: Path) -> pl.DataFrame:
    """Read reviews as JSON lines of users (Hovy et al. 2015, en-US): gender, and reviews with text and rating.

    Paper 000: ratings 5 (positive) and 1 to 2 (negative), a random tenth, the gender as the attribute. Paper 002 states
    no ratings.
    """
    table = _said(_rated(path))
    return _split(_some(table, max(1, table.height // 10)), 0.1)


def trustpilot_domain(path: Path) -> pl.DataFrame:
    """Read the reviews that `trustpilot` leaves: texts of the domain, from which T++ of paper 002 learns."""
    table = _said(_rated(path)).with_row_index()
    chosen = _some(table, max(1, table.height // 10))["index"].implode()
    return _some(table.filter(~pl.col("index").is_in(chosen)).select("text"), PUBLIC)


def _rated(path: Path) -> pl.DataFrame:
    users = pl.read_ndjson(path, infer_schema_length=None).filter(pl.col("gender").is_in(["M", "F"]))
    rows = users.explode("reviews").drop_nulls("reviews").select("gender", pl.col("reviews").struct.unnest())
    text = pl.col("text") if rows.schema["text"] == pl.String else pl.col("text").list.join(" ")
    rating = pl.col("rating").cast(pl.Int64, strict=False)
    rows = rows.with_columns(text=text, rating=rating).filter(pl.col("rating").is_in([1, 2, 5]))
    label = pl.when(pl.col("rating") == 5).then(pl.lit(POSITIVE)).otherwise(pl.lit(NEGATIVE))
    return rows.select("text", label=label, attribute="gender")


def yelp(path: Path) -> pl.DataFrame:
    """Read reviews as JSON lines with user_id, stars, and text, of the ten users with most reviews.

    Papers 001 and 002 use all 17,295; paper 000 keeps 250 of each author when it reads the table. They state labels
    positive or negative; that these are 4 and 5, and 1 and 2 stars, is assumed here. The author is the attribute.
    """
    rows, authors = _authors(path)
    numbers = {author: f"author {number}" for number, author in enumerate(authors)}
    label = pl.when(pl.col("stars") > 3).then(pl.lit(POSITIVE)).otherwise(pl.lit(NEGATIVE))
    table = rows.filter(pl.col("user_id").is_in(authors)).select(
        "text", label=label, attribute=pl.col("user_id").replace_strict(numbers)
    )
    table = _said(table)
    return _split(_some(table, table.height), 0.1)


def yelp_domain(path: Path) -> pl.DataFrame:
    """Read reviews of all users but the authors in `yelp`: texts of the domain, from which T++ of paper 002 learns."""
    rows, authors = _authors(path)
    return _some(_said(rows.filter(~pl.col("user_id").is_in(authors)).select("text")), PUBLIC)


def _authors(path: Path) -> tuple[pl.DataFrame, list[str]]:
    """Return the reviews with a clear rating, and the ten users with most of them."""
    rows = pl.read_ndjson(path, infer_schema_length=None).filter(pl.col("stars") != 3)
    counts = rows["user_id"].value_counts().sort("count", "user_id", descending=[True, False])
    return rows, counts["user_id"][:10].to_list()


def amazon(path: Path) -> pl.DataFrame:
    """Read a folder of tab-separated files, one per category: star_rating and review_body.

    Paper 003: seven categories, at most 20 tokens, 4 and 5 stars are positive, as many positive as negative reviews,
    two thirds of these, and a tenth of them for the test.
    """
    parts = []
    for file in sorted(path.glob("*.tsv*")):
        if any(category in file.name for category in AMAZON):
            rows = pl.read_csv(file, separator="\t", quote_char=None, infer_schema=False, truncate_ragged_lines=True)
            parts.append(rows.select(text="review_body", stars=pl.col("star_rating").cast(pl.Int64, strict=False)))
    if not parts:
        raise SystemExit("no file of the seven categories is in this folder: name the folder of the .tsv files")
    label = pl.when(pl.col("stars") >= 4).then(pl.lit(POSITIVE)).otherwise(pl.lit(NEGATIVE))
    table = _said(pl.concat(parts).drop_nulls().select("text", label=label))
    table = table.filter(pl.col("text").str.count_matches(r"\S+") <= LONGEST)
    bad, good = (table.filter(pl.col("label") == value) for value in (NEGATIVE, POSITIVE))
    few = min(bad.height, good.height)
    both = pl.concat([_some(bad, few), _some(good, few)])
    return _split(_some(both, both.height * 2 // 3), 0.1)


def drugs(path: Path) -> pl.DataFrame:
    """Read a folder with drugsComTrain_raw and drugsComTest_raw (.tsv or .csv): review, rating from 1 to 10, condition.

    Paper 003: ratings 9 and 10 (its classes 8 and 9) are positive; the split of the source.
    """
    parts = []
    for part, split in (("Train", "train"), ("Test", "test")):
        (file, *_) = [*sorted(path.glob(f"drugsCom{part}_raw.*")), None]
        if file is None:
            raise SystemExit(f"drugsCom{part}_raw is not in this folder")
        rows = pl.read_csv(file, separator="\t" if file.suffix == ".tsv" else ",", infer_schema=False)
        rating = pl.col("rating").cast(pl.Float64, strict=False)
        label = pl.when(rating >= 9).then(pl.lit(POSITIVE)).otherwise(pl.lit(NEGATIVE))
        text = pl.col("review").str.strip_chars('"').str.replace_all("&#039;", "'")
        kept = rows.filter(rating.is_not_null())
        parts.append(kept.select(text=text, label=label, attribute="condition", split=pl.lit(split)))
    return _said(pl.concat(parts))


def snli(path: Path) -> pl.DataFrame:
    """Read JSON lines with sentence1, sentence2, and annotator_labels: pairs that DP-Paraphrase learns from.

    Paper 000, appendix B: only pairs that all annotators call entailment.
    """
    rows = pl.read_ndjson(path, infer_schema_length=None)
    agreed = pl.col("annotator_labels").list.eval(pl.element() == "entailment").list.all()
    rows = rows.filter(agreed & (pl.col("annotator_labels").list.len() > 0))
    table = rows.select(text="sentence1", text2="sentence2", label=pl.lit("entailment"), split=pl.lit("train"))
    return _said(table)


def c4(path: Path) -> pl.DataFrame:
    """Read JSON lines with text, as C4's shards have them: public texts that T of paper 002 learns to rewrite.

    At most 100,000 texts, chosen at random, as in the paper. There is no label.
    """
    rows = pl.read_ndjson(path, infer_schema_length=None)
    return _some(_said(rows.select("text", split=pl.lit("train"))), PUBLIC)


def openwebtext(path: Path) -> pl.DataFrame:
    """Read a folder with folders of .txt files, a page each: public texts on which PR and PR+ of paper 003 train."""
    files = sorted(path.rglob("*.txt"))
    chosen = random.Random(SEED).sample(files, min(PUBLIC, len(files)))
    texts = [file.read_text(encoding="utf-8", errors="replace").strip() for file in sorted(chosen)]
    return _said(pl.DataFrame({"text": texts}, schema={"text": pl.String}))


RECIPES: dict[str, Callable[[Path], pl.DataFrame]] = {
    "trustpilot": trustpilot,
    "trustpilot_domain": trustpilot_domain,
    "yelp": yelp,
    "yelp_domain": yelp_domain,
    "amazon": amazon,
    "drugs": drugs,
    "snli": snli,
    "c4": c4,
    "openwebtext": openwebtext,
    **TASKS,
}


def _said(table: pl.DataFrame) -> pl.DataFrame:
    """Leave out rows without a word."""
    return table.filter(pl.col("text").str.contains(r"\w").fill_null(value=False))


def _some(table: pl.DataFrame, rows: int) -> pl.DataFrame:
    return table.sample(min(rows, table.height), seed=SEED, shuffle=True)


def _split(table: pl.DataFrame, tests: float) -> pl.DataFrame:
    """Set a random part of the rows aside for the test: at least one row."""
    order = list(range(table.height))
    random.Random(SEED).shuffle(order)
    tested: set[Any] = set(order[: max(1, round(tests * table.height))])
    return table.with_columns(split=pl.Series(["test" if row in tested else "train" for row in range(table.height)]))
