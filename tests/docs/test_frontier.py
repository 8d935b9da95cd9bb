"""The tidy file of `make -C studies frontier`: a sample of its cells is measured again; its page follows from it."""

import importlib
import math
import re
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.later import later

later("sklearn", reason="scikit-learn is not installed (extra: eval)")
ROOT = Path(__file__).resolve().parents[2]
SAMPLE = [("UCI", "custext", "", 2.0, 0), ("UCI", "surrogate", "everyday-30k", 4.0, 1)]
TAKEN = ("downstream", "nearest_neighbour", "words_kept")


@pytest.fixture(scope="module")
def frontier():
    sys.path.insert(0, str(ROOT / "studies"))
    names = (
        "baselines", "cells", "data", "forms", "masked", "of_draws", "of_latents", "of_surrogate", "page", "paper_001",
        "plan", "shares", "tidy",
    )  # fmt: skip
    yield type("frontier", (), {name: importlib.import_module(f"frontier.{name}") for name in names})
    sys.path.remove(str(ROOT / "studies"))
    for name in [name for name in sys.modules if name.partition(".")[0] in ("frontier", "surrogate_measures")]:
        sys.modules.pop(name)


@pytest.fixture
def room(frontier, tmp_path, monkeypatch):
    monkeypatch.setattr(frontier.cells, "WORK_FOLDER", tmp_path)
    return tmp_path


def cell(frontier, data_set, mechanism, variant, epsilon, key):
    line = next(line for line in frontier.plan.lines({}) if (line.mechanism, line.variant) == (mechanism, variant))
    return frontier.cells.Cell(line, epsilon, frontier.data.read(data_set), key)


@pytest.mark.parametrize("asked", SAMPLE, ids=lambda asked: "-".join(map(str, asked)))
@pytest.mark.thorough
def test_a_sample_of_the_tidy_file_is_measured_again(frontier, room, shared_data, asked):
    data_set, mechanism, variant, epsilon, key = asked
    again = frontier.cells.measured(cell(frontier, *asked), only=TAKEN)
    stored = frontier.tidy.read().filter(
        pl.col("dataset") == data_set,
        pl.col("mechanism") == mechanism,
        pl.col("variant") == variant,
        pl.col("epsilon") == epsilon,
        pl.col("key") == key,
        pl.col("measure").is_in(TAKEN),
    )
    assert stored["epsilon_per_text"].unique().to_list() == [again["cost"]["epsilon"]]
    named = {(name, score["what"]): score for name, found in again["scores"].items() for score in found["figures"]}
    shared = [row for row in stored.to_dicts() if (row["measure"], row["figure"]) in named]
    assert len(shared) >= 8, "figures that were renamed or added since are not in the older rows"
    for row in shared:
        score = named[row["measure"], row["figure"]]
        for name in ("value", "blind", "raw"):
            assert score[name] == pytest.approx(row[name], abs=2e-3), (row["figure"], name)


def test_the_file_has_every_mechanism_and_baseline_and_stays_small(frontier):
    table = frontier.tidy.read()
    assert dict(table.schema) == frontier.tidy.SCHEMA
    lines = {(line.mechanism, line.variant) for line in frontier.plan.lines({})}
    measured = table.filter(pl.col("dataset").is_in(list(frontier.data.CUTS)))
    assert set(measured.select("mechanism", "variant").unique().rows()) == lines
    assert set(measured["dataset"]) == set(frontier.data.CUTS)
    assert frontier.tidy.FILE.stat().st_size < 2 << 20
    table = frontier.tidy.read().filter(pl.col("measure") == frontier.baselines.MEASURE)
    labeled = [name for name, cut in frontier.data.CUTS.items() if cut.label]
    wanted = {(f"{name} (baselines)", what) for name in labeled for what in ("label names", "public data")}
    assert set(table.select("dataset", "figure").rows()) == wanted
    surrogate = frontier.tidy.read().filter(pl.col("measure") == "surrogate_utility")
    for name in surrogate.filter(pl.col("dataset").str.ends_with(" (surrogate)"))["dataset"].unique():
        here = set(surrogate.filter(pl.col("dataset") == name)["figure"])
        assert {"label names", "public data"} <= here, name


def test_the_report_is_made_of_the_file_and_loads_nothing(frontier):
    pytest.importorskip("markdown", reason="mkdocs is not installed (extra: dev)")
    report = frontier.page.report()
    assert report == frontier.page.REPORT.read_text(encoding="utf-8"), "run `make -C studies frontier`"
    assert "{{" not in report
    assert not [word for word in ("http:", "https:", "src=", "@import", "url(") if word in report]
    targets = re.findall(r'href="([^"#]*)#?([^"]*)"', report)
    pages = {f"{path.stem}.html": path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    assert {"index.html", "choose.html"} <= {name for name, _ in targets}
    for name, anchor in targets:
        assert not name or name in pages, name
        assert not anchor or f'id="{anchor}"' in report or f"{{#{anchor}}}" in pages.get(name, ""), anchor
    visible = re.sub(r"<script>.*?</script>|<style>.*?</style>|<[^>]+>", " ", report, flags=re.DOTALL)
    assert len(visible.split()) <= 6_000
    assert report.index("<svg") < report.index("<table")


def test_a_set_has_one_verdict(frontier):
    report = frontier.page.REPORT.read_text(encoding="utf-8")
    choose = (ROOT / "docs" / "choose.md").read_text(encoding="utf-8")
    rows = frontier.forms.compared(frontier.tidy.read())[1]
    for row in rows:
        assert report.count(f"<td>{row[0]}</td>") == choose.count(f"| {' | '.join(row)} |") == 1, row[0]
    assert report.count("do not publish") == sum(row[1].count("do not publish") for row in rows)


def test_a_form_is_advised_only_if_it_beats_every_guess(frontier):
    best_form, free = frontier.forms.best_form, {"label names": 0.6, "public data": 0.5}
    assert best_form(free, {"surrogate": 0.3, "synthetic": 0.61}) is None
    assert best_form(free, {"surrogate": 0.3, "synthetic": 0.8}) == "synthetic"
    assert best_form(free, {"surrogate": 0.79, "synthetic": 0.8}) == "surrogate"


@pytest.mark.thorough
def test_baselines_of_a_set_are_measured_again(frontier, shared_data, monkeypatch):
    monkeypatch.setattr(frontier.baselines, "CUTS", {"UCI": frontier.data.CUTS["UCI"]})
    again = {(row["dataset"], row["figure"]): row["value"] for row in frontier.baselines.rows()}
    stored = frontier.tidy.read().filter(pl.col("dataset") == "UCI (baselines)").select("dataset", "figure", "value")
    assert again == {(name, figure): pytest.approx(value, abs=2e-3) for name, figure, value in stored.rows()}


def test_every_form_is_measured_under_every_key(frontier):
    forms, table = frontier.forms, frontier.tidy.read()
    own = table.filter(pl.col("measure") == forms.MEASURE)
    wanted = {
        (name + forms.ENDS, line.form, line.variant, at): forms.keys_of(name, form)
        for name in forms.PLAN
        for form, line in forms.CENTRAL.items()
        for at in forms.EPSILONS
    }
    keys = own.group_by("dataset", "mechanism", "variant", "epsilon").len()
    assert {tuple(cell): count for *cell, count in keys.rows()} == {cell: keys for cell, keys in wanted.items() if keys}
    assert own["delta"].is_between(0, 1e-6, closed="right").all()
    assert own["value"].is_between(0, 1, closed="none").all()
    for name in forms.PLAN:
        for form in forms.SAYS:
            expected = set(forms.EPSILONS) if form == "surrogate" or forms.keys_of(name, form) else set()
            assert set(forms.reached(table, name, form)) == expected, (name, form)


def test_what_a_latent_tells_is_bounded_by_a_quarter_of_the_ratio_of_signal_to_noise(frontier):
    clip, size, nats = 0.1, 200, frontier.of_latents.nats(500.0)
    sigma = 2 * clip * math.sqrt(size) / math.sqrt(8 * nats)
    assert 0.5 * nats < size / 2 * math.log1p(clip**2 / sigma**2) < nats


@pytest.mark.thorough
def test_printed_gains_reproduce_but_for_two_and_dividing_wins_three_cells_of_twelve(frontier):
    """docs/spec/privacy.md#known-relative-gain."""
    paper, apart = frontier.paper_001, 0
    for of in (paper.YELP, paper.TRUSTPILOT):
        again = paper.gains(of, of.guessing)
        for name, both in of.rows.items():
            for way, row in zip(("evenly", "by scores"), both, strict=True):
                found = zip(row[3:], again[(*name, way)], strict=True)
                apart += sum(abs(printed - value) > paper.NEAR for printed, value in found)
    assert (apart, again["1-Diffractor", "1", "evenly"][0]) == (2, pytest.approx(0.725, abs=1e-3))
    assert paper.better(paper.gains(paper.YELP, paper.YELP.accuracy), paper.YELP) == 3


def test_every_line_has_one_size_on_a_data_set_and_three_keys(frontier):
    """A run that was stopped must not leave a line of two sizes, or of fewer keys than others."""
    table = frontier.tidy.read().filter(pl.col("figure") == frontier.tidy.IN_PLACE)
    found = table.group_by("dataset", "mechanism", "variant").agg(
        sizes=pl.col("n").n_unique(), size=pl.col("n").max(), keys=pl.col("key").n_unique(), rows=pl.len()
    )
    budgets = table.group_by("dataset", "mechanism", "variant").agg(pl.col("epsilon").n_unique())
    assert (set(found["sizes"]), set(found["keys"])) == ({1}, {3})
    assert found["rows"].sum() == 3 * budgets["epsilon"].sum()
    lines = {(line.mechanism, line.variant): line for line in frontier.plan.lines({})}
    for row in found.to_dicts():
        line, cut = lines[row["mechanism"], row["variant"]], frontier.data.CUTS[row["dataset"]]
        most = frontier.data.NEURAL if line.model else cut.rows
        assert row["size"] == min(most, line.most), row
