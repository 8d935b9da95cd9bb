"""Write figures of pages that a stored result holds, so that no page repeats a figure by hand."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
from frontier import forms, of_surrogate, parts, tidy
from frontier.tables import amount
from generators.markdown import table

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results.json"
SHIFT, ENCODER = RESULTS.with_name("word_shift.json"), RESULTS.with_name("encoder.json")
EVERYDAY, WHOLE, DIRECT = "everyday-30k", "", "at once"
CELLS = (
    ("UCI", "surrogate", EVERYDAY, 4.0),
    ("UCI", "surrogate", EVERYDAY, 8.0),
    ("UCI", "custext", WHOLE, 2.0),
    ("UCI", "custext", WHOLE, 10.0),
    ("Snips", "surrogate", EVERYDAY, 4.0),
    ("Snips", "surrogate", EVERYDAY, 8.0),
    ("Snips", "dpmlm", DIRECT, 25.0),
)
"""Data set, mechanism, variant, and epsilon of the rows of `reidentified`."""


def reidentified() -> str:
    """Return how often an attacker's first guess is the raw text, next to the usefulness of the same release."""
    rows = []
    for cell in CELLS:
        measured = parts.found().cell(*cell)
        name, mechanism, _, epsilon = cell
        rows.append(
            (
                f"`{mechanism}`, ε = {epsilon:g} {measured['reading'].partition(',')[0]}",
                f"{measured['attack']:.1%}",
                f"{measured['blind_attack']:.2%}",
                amount(measured["epsilon_per_text"]),
                f"{name}, {measured['n']:,}",
                f"{measured['use']:.2f} / {measured['raw']:.2f}",
            )
        )
    return table(("mechanism", "first guess is right", "by chance", "ε per text", "set, texts", "F1 / raw texts"), rows)


def corpora_of_snips() -> str:
    """Return macro-F1 of three corpora on the requests of Snips at epsilon 4."""
    at = {name: _mean("Snips" + of_surrogate.SETS, name) for name in ("film reviews", "dialogue turns", EVERYDAY)}
    films, turns, everyday = (f"{value:.2f}" for value in at.values())
    return (
        f"At ε = 4, requests of Snips reach {films} with film reviews, {turns} with dialogue turns, and {everyday} "
        f"with `{EVERYDAY}` (in domain)."
    )


def _mean(data_set: str, variant: str, epsilon: float = 4.0) -> float:
    rows = tidy.read().filter(
        pl.col("dataset") == data_set,
        pl.col("variant") == variant,
        pl.col("epsilon") == epsilon,
        pl.col("figure") == of_surrogate.F1,
    )
    return float(rows.select(pl.mean("value")).item())


def encoder_discriminant() -> str:
    """Return macro-F1 of the linear discriminant over words, static vectors, and a sentence encoder."""
    return _encoder(
        {"linear_discriminant": ("linear_discriminant", "static_discriminant")}, ("`words`", "static vectors")
    )


def encoder_draws() -> str:
    """Return macro-F1 of draws of `surrogate` over words and over a sentence encoder, by row and shuffled."""
    return _encoder({"surrogate": ("surrogate",), "shuffled": ("shuffled",)}, ("by row: `words`", "shuffled: `words`"))


def _encoder(compared: dict[str, tuple[str, ...]], head: tuple[str, ...]) -> str:
    """Return, by data set, forms over word vectors, and the same form over the sentence encoder; means over keys."""
    facts, all_rows, rows = json.loads(ENCODER.read_text("utf-8")), tidy.read(), []
    means = pl.DataFrame(facts["rows"]).group_by("set", "texts", "form", "epsilon", maintain_order=True)
    encoder = means.agg(pl.col("value").mean())
    for name, texts in dict.fromkeys(encoder.select("set", "texts").rows()):
        cells = []
        for form, others in compared.items():
            at = dict(encoder.filter(set=name, form=form).select("epsilon", "value").rows())
            lines = [*(forms.reached(all_rows, name, other) for other in others), at]
            cells += [" / ".join(f"{line[epsilon]:.2f}" for epsilon in at) for line in lines]
        rows.append((f"{name}, {texts:,}", *cells))
    budgets, model = " / ".join(f"{epsilon:g}" for epsilon in at), f"`{facts['encoder']}`"
    last = [model] if len(compared) == 1 else [f"the same, {model}"]
    columns = [*head, *last] if len(compared) == 1 else [column for title in head for column in (title, *last)]
    return table((f"set, texts: F1 at ε = {budgets}", *columns), rows)


def word_shift() -> str:
    """Return the shares of texts that hold a word, in raw and in drawn texts."""
    facts = json.loads(SHIFT.read_text("utf-8"))
    words = next(iter(facts["shares"].values()))
    rows = [(title, *(f"{share:.1%}" for share in shares.values())) for title, shares in facts["shares"].items()]
    return table(
        (f"{facts['set']}, {facts['texts']:,} texts, over `{facts['corpus']}`", *(f"*{word}*" for word in words)), rows
    )


def scale() -> str:
    """Return the cost of runs over a million rows, with the machine."""
    part = json.loads(RESULTS.read_text("utf-8"))["parts"]["scale"]
    first, memory, again, more = part["rows"]
    peak, whole = more["measured"].removesuffix(" at the peak"), "the first run"
    rows = (
        ("first run over 10⁶ rows", first, f"{_amount(first)}, {_amount(memory)}", "the cost per row over 10⁵ rows"),
        ("the same run again, nothing changed", again, _amount(again), whole),
        ("1,000 new rows next to 10⁶ published rows", more, peak, whole),
    )
    shown = ((work, cost, f"{float(row['ratio']):.1%} of {against}") for work, row, cost, against in rows)
    return f"Measured on {part['date']} ({part['machine']}):\n\n{table(('work', 'cost', 'relative to'), shown)}"


def _amount(row: dict[str, str]) -> str:
    """Return the first quantity of a measured row."""
    return row["measured"].partition(",")[0].partition(" (")[0]
