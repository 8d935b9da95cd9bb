"""A made-up raw table, its releases, and arguments of `dptext evaluate`, for tests of the evaluation."""

import numpy as np
import polars as pl

from dptext_etl_eval import join

SENTINEL = "zzqsentinelqzz"
ROWS = 120


def table(rows=ROWS):
    """Texts that tell their label by one word and their person's city by another."""
    random = np.random.default_rng(3)
    label, city = random.integers(0, 2, rows), random.integers(0, 3, rows)
    noise = [" ".join(f"w{word}" for word in random.integers(0, 30, 6)) for _ in range(rows)]
    text = [
        f"{SENTINEL} {('awful', 'lovely')[a]} {('paris', 'oslo', 'rome')[b]} {rest} only{row}"
        for row, (a, b, rest) in enumerate(zip(label, city, noise, strict=True))
    ]
    people = [f"p{row // 2}" for row in range(rows)]
    return pl.DataFrame({"id": range(rows), "text": text, "stars": label, "city": city, "person": people})


def pairs(release, **given):
    frame = table()
    released = pl.DataFrame({"id": frame["id"], "text": [release(text) for text in frame["text"]]})
    return join(frame.lazy(), released.lazy(), id="id", text="text", label="stars", attribute="city", **given)


def figures(found):
    """Every figure by its measure and its words."""
    return {
        (type(item.measure).__name__, score.what): score
        for item in (*found.metrics, *found.attacks)
        for score in item.scores
    }


def saved(tmp_path, released=None):
    frame = table()
    after = (
        frame.select("id", pl.col("text").str.replace_all("paris|oslo|rome", "town")) if released is None else released
    )
    frame.write_parquet(tmp_path / "raw.parquet")
    after.write_parquet(tmp_path / "released.parquet")
    return ["evaluate", tmp_path / "raw.parquet", tmp_path / "released.parquet", "--out", tmp_path / "report"]


NAMED = ("--id", "id", "--text", "text")
