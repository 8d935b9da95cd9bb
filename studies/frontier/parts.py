"""Make the parts of the page: each is HTML for one place of `report.md`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from html import escape

import polars as pl

from dptext_etl.guarantee import Disclosure, GuaranteeClass
from frontier import baselines, charts, choose, forms, of_draws, of_latents, of_surrogate, tidy
from frontier.cells import SPANS
from frontier.data import CUTS
from frontier.shares import best, points
from frontier.tables import amount, figure, folded, named, of_data_set, table

WANTED = (0.5, 0.8)
SIZED = ("dpbart", "santext", "custext")
"""Mechanisms whose numbers of texts are set by their kind: with a language model, slow, and others."""


@cache
def found() -> choose.Found:
    """Read the tidy file once."""
    all_rows = tidy.read()
    return choose.Found(points(all_rows), tidy.means(all_rows))


def choice() -> str:
    """Return what to choose, in a few lines."""
    return f'<ol class="choice">{"".join(f"<li>{line}</li>" for line in choose.lines(found()))}</ol>'


def frontiers() -> str:
    """Return the plots of use against attack."""
    return charts.legend(found().points) + charts.grid(found().points, charts.frontier)


def budgets() -> str:
    """Return the plots of use against epsilon per text."""
    return charts.grid(found().points, charts.budgets)


def unbeaten() -> str:
    """Return, by data set, the lines that no other one beats in both."""
    rows = []
    here = best(found().points.filter(pl.col("use_kept") > 0.1, pl.col("attack_kept").is_not_null()))
    for name in (name for name in CUTS if name != "pii_synth"):
        some = here.filter(pl.col("dataset") == name).sort("use_kept", descending=True).to_dicts()
        text = "; ".join(f"{named(row)} at {row['epsilon']:g}" for row in some)
        rows.append([name, escape(CUTS[name].says), text])
    return table(["data set", "what it is", "lines that no other beats in both, most use first"], rows)


def equal_use() -> str:
    """Return the smallest measured epsilon per text at which a line keeps half and four fifths of the use."""
    labelled = [name for name, cut in CUTS.items() if cut.label]
    rows = []
    lines = found().points.select("mechanism", "variant").unique(maintain_order=True).to_dicts()
    for line in sorted(lines, key=lambda row: (row["mechanism"] != "surrogate", row["mechanism"], row["variant"])):
        here = found().points.filter(pl.col("mechanism") == line["mechanism"], pl.col("variant") == line["variant"])
        cells = []
        for name in labelled:
            at = here.filter(pl.col("dataset") == name)
            least = [at.filter(pl.col("use_kept") >= share)["epsilon_per_text"].min() for share in WANTED]
            cells.append("" if not len(at) else " / ".join("–" if one is None else amount(float(one)) for one in least))  # type: ignore[arg-type]
        rows.append([named(line), *cells])
    return table(["mechanism", *labelled], rows, sorts=True)


def mechanisms() -> str:
    """Return what every line costs and shows, in words, and on how many texts it was measured."""
    rows = []
    for row in found().points.group_by("mechanism", "variant", maintain_order=True).first().to_dicts():
        at = found().points.filter(pl.col("mechanism") == row["mechanism"], pl.col("variant") == row["variant"])
        low, high = (amount(value) for value in (at["epsilon_per_text"].min(), at["epsilon_per_text"].max()))  # type: ignore[arg-type]
        shows = [Disclosure(name).meaning for name in row["discloses"].split(", ") if name != "nullness"]
        claim = GuaranteeClass(row["guarantee"])
        least, most = at.select(least=pl.min("n"), most=pl.max("n")).row(0)
        rows.append(
            [
                named(row),
                escape(row["reading"]),
                f"{low} to {high}",
                f"{least:,}" if least == most else f"{least:,} to {most:,}",
                f"{claim.value}: {escape(claim.meaning)}",
                escape("; ".join(shows)) or "only which rows are null",
            ]
        )
    return table(["mechanism", "ε is", "measured ε per text", "texts of a set", "guarantee", "shown in clear"], rows)


def sizes() -> str:
    """Return how many texts of a data set lines with a language model release, and others, in words."""
    rows = found().means.filter(pl.col("dataset").is_in(list(CUTS)), pl.col("figure") == tidy.IN_PLACE)
    most = {name: rows.filter(pl.col("mechanism") == name).select(pl.max("n")).item() for name in SIZED}
    return (
        f"{most['dpbart']:,} by mechanisms with a language model, {most['santext']:,} by SanText and MADLIB, "
        f"up to {most['custext']:,} by the others"
    )


def survivors() -> str:
    """Return how much typed personal data is in its own release."""
    here = found().means.filter(pl.col("measure") == SPANS)
    kinds = sorted(set(here["figure"]) - {"all"})
    wide = here.pivot("figure", index=["mechanism", "variant", "epsilon", "reading"], values="value")
    rows = [
        [named(row), f"{row['epsilon']:g} {escape(row['reading'])}", *(figure(row[kind]) for kind in ("all", *kinds))]
        for row in wide.sort("mechanism", "variant", "epsilon").to_dicts()
    ]
    raw = [figure(here.filter(pl.col("figure") == kind)["raw"].max()) for kind in ("all", *kinds)]  # type: ignore[arg-type]
    names = [kind.lower().replace("_", " ") for kind in kinds]
    every = table(["mechanism", "its ε", "all", *names], [*rows, ["the raw texts", "", *raw]], sorts=True)
    return _surviving(here) + folded("by kind of span", every)


def _surviving(here: pl.DataFrame) -> str:
    """Return the share of all spans that survive, one row per line."""
    rows = []
    for (mechanism, variant), some in here.filter(pl.col("figure") == "all").group_by(
        "mechanism", "variant", maintain_order=True
    ):
        text = ", ".join(f"{row['value']:.1%} at {row['epsilon']:g}" for row in some.sort("epsilon").to_dicts())
        rows.append([named({"mechanism": mechanism, "variant": variant}), escape(some["reading"][0]), text])
    return table(["mechanism", "ε is", "spans that survive"], rows)


def tables() -> str:
    """Return everything that was measured, by data set."""
    made = {name: of_data_set(found().points, found().means, name) for name in CUTS if name != "pii_synth"}
    return "".join(folded(f"{name}: {CUTS[name].says}", text) for name, text in made.items())


PARTS: dict[str, Callable[[], str]] = {
    "frontier_choice": choice,
    "frontier_baselines": lambda: baselines.baselines(tidy.read(), found().points),
    "frontier_forms": lambda: forms.forms(tidy.read()),
    "frontier_encoders": lambda: of_surrogate.encoders(tidy.read()),
    "frontier_plots": frontiers,
    "frontier_budgets": budgets,
    "frontier_unbeaten": unbeaten,
    "frontier_equal_use": equal_use,
    "frontier_mechanisms": mechanisms,
    "frontier_survivors": survivors,
    "frontier_tables": tables,
    "frontier_sizes": sizes,
    "frontier_corpora": lambda: of_surrogate.corpora(tidy.read()),
    "frontier_learners": lambda: of_surrogate.learners(tidy.read()),
    "frontier_words": lambda: of_surrogate.words(tidy.read()),
    "frontier_draws": lambda: of_draws.draws(tidy.read()),
    "frontier_latents": lambda: of_latents.latents(tidy.read()),
    "frontier_latent_models": lambda: of_latents.facts(tidy.read()),
    "frontier_nats": lambda: of_latents.nats_by_budget(tidy.read()),
}
