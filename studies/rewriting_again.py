"""`make -C studies rewriting-again`: measure what rewriting released texts brings, on three public data sets.

A word mechanism and DP-MLM release rows of each set under throw-away keys; a small model writes them anew. It is the
one that ships (a denoiser that never saw the mechanism), and the same one tuned on public texts that the mechanism
itself privatized (`dptext train rewriter`). Public data only.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from rewriting_page import CONCLUSION, INTRO, OPEN, WITHOUT_A_MODEL

from dptext_etl.column import draw
from dptext_etl.keys import throwaway
from dptext_etl.mechanism import Mechanism
from dptext_etl.mechanisms.custext import CusText
from dptext_etl_eval.attacks.attribute import Attribute
from dptext_etl_eval.metrics.bleu import Bleu
from dptext_etl_eval.metrics.cosine import Cosine
from dptext_etl_eval.pairs import Pairs, words_of
from dptext_etl_models.mechanisms.dpmlm import DPMLM

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
PAGE = ROOT / "studies" / "reports" / "rewriting-again.md"
MODEL = "english-denoiser"
SETS = {
    "film snippets": ("movie_snippets4/movie_snippets4.parquet", "author"),
    "chat": ("nps_chat/nps_chat.parquet", "age_group"),
    "blog posts": ("blog_gender/blog_gender.parquet", "gender"),
}
MECHANISMS: dict[str, Mechanism] = {
    "CusText, ε = 2 per word": CusText(epsilon=2.0),
    "DP-MLM, ε = 50 per word": DPMLM(epsilon=50.0, model="english-small", decoding="parallel"),
}
PUBLIC = ("sgd_utterances", "wiki_en", "imdb_unsup")
ROWS = 200
DRAWS = 2
LONGEST = 20
TEMPLATE = "Document : {text}\nParaphrase of the document :"

State = tuple[Counter[tuple[str, ...]], Counter[tuple[str, ...]], int]


class Fluency:
    """An interpolated trigram model of public text (Witten-Bell), which no mechanism and no rewriter uses.

    Args:
        texts: Public texts.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._seen: tuple[Counter[tuple[str, ...]], ...] = (Counter(), Counter(), Counter())
        self._before: tuple[Counter[tuple[str, ...]], ...] = (Counter(), Counter(), Counter())
        self._kinds: tuple[Counter[tuple[str, ...]], ...] = (Counter(), Counter(), Counter())
        for text in texts:
            words = ["<", "<", *words_of(text), ">"]
            for place in range(2, len(words)):
                for order in range(3):
                    gram = tuple(words[place - order : place + 1])
                    self._kinds[order][gram[:-1]] += gram not in self._seen[order]
                    self._seen[order][gram] += 1
                    self._before[order][gram[:-1]] += 1

    def chance(self, gram: tuple[str, ...]) -> float:
        """Return the probability of the last word after those before it; below all others lies a uniform one."""
        below = self.chance(gram[1:]) if len(gram) > 1 else 1 / 100_000
        order = len(gram) - 1
        before, kinds = self._before[order][gram[:-1]], self._kinds[order][gram[:-1]]
        return (self._seen[order][gram] + kinds * below) / (before + kinds) if before else below

    def perplexity(self, texts: Sequence[str]) -> float:
        """Return exp of the mean negative logarithm per word, ends of texts included."""
        total, count = 0.0, 0
        for text in texts:
            words = ["<", "<", *words_of(text), ">"]
            for place in range(2, len(words)):
                total -= math.log(self.chance(tuple(words[place - 2 : place + 1])))
                count += 1
        return math.exp(total / count)


@dataclass(frozen=True)
class Sample:
    """Rows of a set, with the attribute that an attacker infers."""

    texts: tuple[str, ...]
    attribute: Any


def samples(rows: int) -> dict[str, Sample]:
    """Read the sets: the first words of texts of five words and more, equally many of every value."""
    samples_ = {}
    for name, (path, attribute) in SETS.items():
        frame = pl.read_parquet(DATA / path).with_columns(pl.col(attribute).cast(pl.String)).drop_nulls(attribute)
        cut = [" ".join(words_of(text)[:LONGEST]) for text in frame["text"]]
        frame = frame.with_columns(text=pl.Series(cut)).filter(pl.col("text").str.count_matches(r"\S+") >= 5)
        frame = frame.unique("text", maintain_order=True)
        common = frame[attribute].value_counts(sort=True)[attribute].to_list()[:4]
        parts = [
            frame.filter(pl.col(attribute) == value).sample(rows // len(common), seed=0, shuffle=True)
            for value in common
        ]
        frame = pl.concat(parts).sample(fraction=1.0, seed=1, shuffle=True)
        samples_[name] = Sample(tuple(frame["text"]), np.array(frame[attribute].to_list()))
    return samples_


def public_texts(count: int) -> list[str]:
    """Return public texts spread over the corpora, another part of them than held-out figures use."""
    texts: list[str] = []
    for name in PUBLIC:
        frame = pl.scan_parquet(DATA / "public_corpus" / f"{name}.parquet").select("text").collect()
        texts += [" ".join(text.split()[:60]) for text in frame.sample(min(count, len(frame)), seed=3)["text"]]
    return texts


def released(mechanism: Mechanism, texts: Sequence[str]) -> list[str]:
    """Release a column under a new key."""
    ids = pa.array([str(row) for row in range(len(texts))])
    column = pa.array(texts, pa.large_string())
    out: list[str] = draw(mechanism, column, ids, throwaway(mechanism.cfg())).text.to_pylist()
    return out


def rewritten(model: str, texts: Sequence[str], tokens: int = 2 * LONGEST) -> list[str]:
    """Write texts anew by the best token each time, up to a constant number of tokens; three times as many are read."""
    import torch

    from dptext_etl_models.inference import language_model
    from dptext_etl_models.inference.prompts import Prompts

    files = language_model.model_files(model)
    loaded, tokenizer = language_model.sequence_model(files), language_model.tokenizer(files)
    places = getattr(loaded.config, "max_position_embeddings", 3 * tokens)
    prompts = Prompts(tokenizer, TEMPLATE, min(3 * tokens, places), 100, continued=False)
    texts_: list[str] = []
    for start in range(0, len(texts), 50):
        encoded = prompts.encode(texts[start : start + 50])
        width = max(len(prompt or ()) for prompt in encoded)
        padding = loaded.config.pad_token_id
        ids = torch.tensor([[*(prompt or ()), *[padding] * (width - len(prompt or ()))] for prompt in encoded])
        with torch.inference_mode():
            made = loaded.generate(
                input_ids=ids,
                attention_mask=ids != padding,
                max_new_tokens=min(tokens, places - 1),
                do_sample=False,
                num_beams=1,
            )
        texts_ += [" ".join(words_of(prompts.decode(row))) for row in made.tolist()]
    return texts_


def figures(sample: Sample, texts: Sequence[str], fluency: Fluency) -> dict[str, float]:
    """Return all figures of one column of texts."""
    pairs = Pairs(sample.texts, tuple(texts), attribute=sample.attribute)
    attack = {score.what: score.value or 0.0 for score in Attribute().of(pairs)}
    return {
        "perplexity": fluency.perplexity(texts),
        "BLEU": 100 * (Bleu().of(pairs)[0].value or 0.0),
        "cosine": Cosine().of(pairs)[0].value or 0.0,
        "static": next(value for what, value in attack.items() if what.startswith("static") and "accuracy" in what),
        "adaptive": next(value for what, value in attack.items() if what.startswith("adaptive") and "accuracy" in what),
    }


def measured(rows: int, draws: int, tuned: dict[str, dict[str, str]]) -> pl.DataFrame:
    """Return one row per set, mechanism, rewriter and draw.

    Args:
        rows: Rows of each set.
        draws: Releases of each column, each under a new key.
        tuned: Folders of tuned rewriters, by mechanism and by their names.
    """
    fluency = Fluency(public_texts(8_000))
    measured_rows: list[dict[str, Any]] = []
    for name, sample in samples(rows).items():
        measured_rows.append(
            {"set": name, "mechanism": "raw", "rewriter": "-", "draw": 0} | figures(sample, sample.texts, fluency)
        )
        for label, mechanism in MECHANISMS.items():
            for number in range(draws):
                texts = released(mechanism, sample.texts)
                models = {"-": None, "ships": MODEL} | tuned.get(label, {})
                for rewriter, model in models.items():
                    after = texts if model is None else rewritten(model, texts)
                    key = {"set": name, "mechanism": label, "rewriter": rewriter, "draw": number}
                    measured_rows.append(key | figures(sample, after, fluency))
            sys.stderr.write(f"{name}, {label}\n")
    return pl.DataFrame(measured_rows)


NAMES = {"perplexity": 0, "BLEU": 1, "cosine": 3, "static": 3, "adaptive": 3}


def page(table: pl.DataFrame, rows: int) -> str:
    """Return the page: what rewriting changes over all sets and draws, and the figures of every set."""
    draws = table.select(pl.max("draw")).item() + 1
    return (
        INTRO.format(rows=rows, draws=draws, longest=LONGEST)
        + _answer(table)
        + _changes(table)
        + _tables(table)
        + WITHOUT_A_MODEL
        + OPEN
    )


def changes(table: pl.DataFrame) -> pl.DataFrame:
    """Return after minus before, per set, mechanism, rewriter and draw; perplexity as a ratio."""
    keys = ["set", "mechanism", "draw"]
    before = table.filter((pl.col("rewriter") == "-") & (pl.col("mechanism") != "raw"))
    after = table.filter(pl.col("rewriter") != "-").join(before, on=keys, suffix=" before")
    ratio = (pl.col("perplexity") / pl.col("perplexity before")).alias("perplexity")
    others = [(pl.col(name) - pl.col(f"{name} before")).alias(name) for name in NAMES if name != "perplexity"]
    return after.select(*keys, "rewriter", ratio, *others)


def _answer(table: pl.DataFrame) -> str:
    """Say of every rewriter in how many releases each figure moved, and whether an attacker's change exceeds chance."""
    lines = ["## Does it help?", ""]
    for (mechanism, rewriter), some in sorted(changes(table).group_by("mechanism", "rewriter")):
        count = len(some)
        fluent, alike, near = (
            int((some[name] < edge).sum()) for name, edge in (("perplexity", 1), ("BLEU", 0), ("cosine", 0))
        )
        means = some.select(pl.mean("static", "adaptive").fill_null(0.0)).row(0, named=True)
        error = (some.select(pl.std("adaptive")).item() or 0.0) / math.sqrt(count)
        verdict = "beyond chance" if abs(means["adaptive"]) > 2 * error else "within chance"
        lines.append(
            f"* {mechanism}, *{rewriter}*: more fluent in {fluent} of {count} releases; BLEU fell in {alike}, "
            f"the cosine in {near}. The adaptive attacker changed by {100 * means['adaptive']:+.1f} points on average "
            f"(standard error {100 * error:.1f}: {verdict}), the static one by {100 * means['static']:+.1f}."
        )
    return "\n".join([*lines, "", CONCLUSION, ""])


def _changes(table: pl.DataFrame) -> str:
    each = changes(table)
    lines = [
        "## What changes",
        "",
        "Mean over sets and releases, in brackets the least and the largest change; of perplexity the ratio.",
        "",
        "| mechanism | rewriter | " + " | ".join(NAMES) + " |",
        "| --- | --- |" + " --- |" * len(NAMES),
    ]
    for (mechanism, rewriter), some in sorted(each.group_by("mechanism", "rewriter")):
        cells = []
        for name, digits in NAMES.items():
            form = ".2f" if name == "perplexity" else f"+.{digits}f"
            low, mean, high = (
                f"{value:{form}}" for value in some.select(pl.min(name), b=pl.mean(name), c=pl.max(name)).row(0)
            )
            cells.append(f"{mean} ({low} … {high})")
        lines.append(f"| {mechanism} | {rewriter} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _tables(table: pl.DataFrame) -> str:
    lines: list[str] = []
    for (name,), some in table.group_by("set", maintain_order=True):
        lines += ["", f"## {str(name).capitalize()}", "", "| released by | rewriter | " + " | ".join(NAMES) + " |"]
        lines.append("| --- | --- |" + " --- |" * len(NAMES))
        for (mechanism, rewriter), rows in some.group_by("mechanism", "rewriter", maintain_order=True):
            means = [f"{rows.select(pl.mean(column)).item():.{digits}f}" for column, digits in NAMES.items()]
            lines.append(f"| {mechanism} | {rewriter} | " + " | ".join(means) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and write the page; or write it from figures that were measured before."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--tuned", action="append", default=[], metavar="MECHANISM[:TEXTS]=FOLDER")
    parser.add_argument(
        "--figures", type=Path, help="Parquet file of all figures; it is written, or read if it is there."
    )
    parser.add_argument("--out", type=Path, default=PAGE)
    given = parser.parse_args()
    names = {label.partition(",")[0].lower(): label for label in MECHANISMS}
    tuned: dict[str, dict[str, str]] = {}
    for item in given.tuned:
        (mechanism, _, texts), folder = item.partition("=")[0].partition(":"), item.partition("=")[2]
        tuned.setdefault(names[mechanism], {})[f"tuned on {texts}" if texts else "tuned"] = folder
    if given.figures is not None and given.figures.is_file():
        table = pl.read_parquet(given.figures)
    else:
        table = measured(given.rows, given.draws, tuned)
        if given.figures is not None:
            table.write_parquet(given.figures)
    given.out.write_text(page(table, given.rows), encoding="utf-8")


if __name__ == "__main__":
    main()
