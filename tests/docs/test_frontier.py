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


@pytest.mark.thorough
def test_a_stopped_run_goes_on_and_a_new_measure_takes_the_kept_release(frontier, room, shared_data, monkeypatch):
    one = cell(frontier, "UCI", "custext", "", 5.0, 0)
    monkeypatch.setattr(type(one), "rows", 60)
    first = frontier.cells.measured(one, only=["words_kept"])
    monkeypatch.setattr(frontier.cells, "released", lambda *_: pytest.fail("released once more"))
    assert frontier.cells.measured(one, only=["words_kept"]) == first
    more = frontier.cells.measured(one, only=["words_kept", "diversity"])
    assert (set(more["scores"]), frontier.cells.kept_figures(one)) == ({"words_kept", "diversity"}, more)


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


def test_shares_lie_between_not_looking_and_raw_texts(frontier):
    use, attack = frontier.shares.USE, frontier.shares.AGAIN
    common = {"dataset": "UCI", "mechanism": "m", "variant": "", "epsilon": 1.0, "key": 0}

    def table(raw):
        rows = [
            {**common, "measure": use[0], "figure": use[1], "value": 0.7, "blind": 0.5, "raw": raw},
            {**common, "measure": attack[0], "figure": attack[1], "value": 0.1, "blind": 0.1, "raw": 1.0},
        ]
        filled = [{**dict.fromkeys(frontier.tidy.SCHEMA), **row} for row in rows]
        return pl.DataFrame(filled, schema=frontier.tidy.SCHEMA)

    (row,) = frontier.shares.points(table(raw=0.9)).to_dicts()
    assert (row["use_kept"], row["attack_kept"]) == (pytest.approx(0.5), pytest.approx(0.0))
    assert (row["use"], row["attack"]) == (0.7, 0.1)
    (row,) = frontier.shares.points(table(raw=0.54)).to_dicts()
    assert row["use_kept"] is None


def test_figures_of_one_family_take_the_place_of_its_earlier_ones(frontier, tmp_path):
    path = tmp_path / "tidy.parquet"
    before = frontier.tidy.read()
    before.write_parquet(path)
    row = {"dataset": "toy", "mechanism": "m", "variant": "", "figure": "f", "value": 1.0}
    after = frontier.tidy.put("latent_utility", [row], path)
    assert after.filter(pl.col("measure") == "latent_utility")["dataset"].to_list() == ["toy"]
    kept = pl.col("measure") != "latent_utility"
    assert after.filter(kept).equals(before.filter(kept))
    assert frontier.tidy.families(path)[0]["measure"] in frontier.tidy.FAMILIES
    assert frontier.tidy.read(path).equals(after)


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


@pytest.mark.thorough
def test_a_form_of_a_set_is_measured_through_the_release(frontier, tmp_path):
    from surrogate_measures import DataSet, FigureCache

    from dptext_etl.corpora import Corpus

    texts = ["play the new album of the band", "the bank closed my account"] * 200
    labels = ["music", "money"] * 200
    data = DataSet("toy", (texts, labels), (texts[:2], labels[:2]), names={"music": "music", "money": "money"})
    for form in frontier.forms.CENTRAL:
        line = frontier.forms.CENTRAL[form]
        row = frontier.forms._row(FigureCache(tmp_path / form), data, form, 8.0, 0, Corpus.open("everyday-30k"))
        assert (row["dataset"], row["mechanism"], row["n"], row["value"]) == ("toy (forms)", line.form, 400, 1.0)
        assert row["delta"] == 1e-6


def test_ways_to_draw_are_told_apart_by_two_standard_errors(frontier):
    less = frontier.of_draws.LESS
    common = {"dataset": f"toy{frontier.of_draws.SETS}", "mechanism": "dpmlm", "measure": "score_utility", "n": 9}
    rows = [
        {**common, "variant": name, "epsilon": epsilon, "figure": figure, "value": value, "low": low, "high": high}
        for name, epsilon, figure, value, low, high in (
            ("sequential", None, frontier.of_draws.RATE, 10.0, None, None),
            ("parallel", None, frontier.of_draws.RATE, 50.0, None, None),
            ("parallel", 25.0, f"BLEU of a text, 0 to 100{less}", -4.0, -5.0, -3.0),
            ("parallel", 50.0, f"BLEU of a text, 0 to 100{less}", -1.0, -3.0, 1.0),
        )
    ]
    filled = [{**dict.fromkeys(frontier.tidy.SCHEMA), **row} for row in rows]
    (said,) = frontier.of_draws.verdicts(pl.DataFrame(filled, schema=frontier.tidy.SCHEMA))
    assert said.startswith("<b>parallel</b>: 5.0 × as fast; BLEU level at 1 of 2 budgets, -4 at 25; cosine level at 2")


def test_what_a_latent_tells_is_bounded_by_a_quarter_of_the_ratio_of_signal_to_noise(frontier):
    clip, size, nats = 0.1, 200, frontier.of_latents.nats(500.0)
    sigma = 2 * clip * math.sqrt(size) / math.sqrt(8 * nats)
    assert 0.5 * nats < size / 2 * math.log1p(clip**2 / sigma**2) < nats


@pytest.mark.thorough
def test_a_release_is_attacked_once_and_the_tidy_file_says_on_how_many_texts(frontier, room, shared_data, monkeypatch):
    from dptext_etl_eval.measure import Score

    seen = []

    def of(_, pairs):
        seen.append((len(pairs), pairs.words("released")))
        return [Score("by bag", 0.25)]

    monkeypatch.setattr(frontier.masked, "WORK_FOLDER", room)
    monkeypatch.setattr(frontier.masked.MaskedTokens, "of", of)
    one = cell(frontier, "UCI", "custext", "", 5.0, 0)
    monkeypatch.setattr(type(one), "rows", 150)
    assert not frontier.masked.attacked(one, {})
    frontier.cells.measured(one, only=["words_kept"])
    memory = {}
    assert frontier.masked.attacked(one, memory)
    assert not frontier.masked.attacked(one, memory)
    other = cell(frontier, "UCI", "custext", "", 5.0, 1)
    frontier.cells.measured(other, only=["words_kept"])
    assert frontier.masked.attacked(other, memory)
    assert [count for count, _ in seen] == [frontier.masked.ROWS] * 2
    assert seen[0][1] != seen[1][1]  # one release is not confused with the next
    sizes = {row["measure"]: row["n"] for row in frontier.tidy.rows([one])}
    assert sizes == {"words_kept": 150, frontier.masked.NAME: frontier.masked.ROWS}


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
