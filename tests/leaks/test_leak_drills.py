"""The peers' bugs, planted one by one: each is stopped by the gates that `studies/reports/leak-drills.md` names.

`make -C studies leak-drills` runs them and writes the page from what stopped them.
"""

import hashlib
import json
import os
import traceback
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from dptext_etl import Ledger, Policy, _kernel, run
from dptext_etl.checks.published import check_published
from dptext_etl.checks.verdict import Verdict
from dptext_etl.embeddings import WordVectors
from dptext_etl.engines import stage
from dptext_etl.errors import DPTextError, GateError, LedgerError, PolicyError
from dptext_etl.polars import guard
from dptext_etl.runner import check, publish
from dptext_etl.runner.publish.publication import reports
from dptext_etl.runner.shard import computing
from tests.policy_files import custext_column, policy_in
from tests.quick import quick

from .drills import BUGS, LEAKS, MODELS, Shard, cut_to_what_the_text_says, shifted_by_one_row
from .drills_page import ELSEWHERE, PAGE, SAID, page
from .guard_bypasses import WAYS, in_bytes, ipc, parquet, released

SENTINEL = "zqdrillsentinel"


@pytest.fixture(scope="module")
def outcomes():
    """What stopped which drill; `make -C studies leak-drills` writes it as a page."""
    found = {}
    yield found
    if os.environ.get("DPTEXT_WRITE_PAGES") and len(found) == len((*BUGS, *LEAKS, *MODELS, *WAYS, *SAID, *ELSEWHERE)):
        PAGE.write_text(page(found), encoding="utf-8")


@pytest.fixture
def policy(tmp_path, small_vectors):
    """Three shards of texts with unknown words, capitals and repeats."""
    _kernel.Secret.from_bytes(bytes(range(50, 82))).write(str(tmp_path / "noise.key"))
    words = [word for word in WordVectors.load(small_vectors).words if word.isalpha()]
    random = np.random.default_rng(11)
    texts = [" ".join(random.choice(words, 14)) for _ in range(90)]
    texts[::9] = [f"{text.capitalize()} {SENTINEL}" for text in texts[::9]]
    pl.DataFrame({"id": range(90), "text": texts}).write_parquet(tmp_path / "raw.parquet")
    return policy_in(tmp_path, custext_column(small_vectors), dataset="drills", shard_rows=30)


def plant(monkeypatch, change):
    """Let a run release the texts of a mechanism with this bug."""
    right, kept = computing.release, {}

    def wrong(texts, ids, policy):
        out = right(texts, ids, policy)
        shard = Shard(policy.mechanism, pa.array(texts).to_pylist(), pa.array(out.text).to_pylist(), kept)
        return out._replace(text=pa.array(change(shard), pa.large_string()))

    monkeypatch.setattr(computing, "release", wrong)


@pytest.mark.parametrize("drill", BUGS, ids=lambda drill: drill.planted)
def test_a_bug_of_a_mechanism(policy, monkeypatch, outcomes, drill):
    plant(monkeypatch, drill.bug)
    policy = Policy.parse({**policy.model_dump(by_alias=True, exclude_none=True), **drill.changes})
    staged = stage(policy)
    verdicts = check(staged)
    stopped = {verdict.name for verdict in verdicts if not verdict.passed}
    outcomes[drill.planted] = (drill, stopped)
    assert stopped >= drill.stops
    assert bool(stopped) is bool(drill.stops)
    if not stopped:
        assert any("equal their originals" in item["message"] and item["counts"]["copies"] for item in reports(staged))
    if stopped:
        with pytest.raises(GateError):
            publish(staged, verdicts)
        assert not list(Path(policy.sink).rglob("*.parquet"))


SHAPES = [drill for drill in BUGS if drill.stops == {"rows_ledgered"}]
"""Releases that become null, empty, shorter or longer because of the raw text."""


@pytest.mark.parametrize("drill", quick(SHAPES), ids=lambda drill: drill.planted)
def test_a_release_of_another_shape_is_stopped_with_a_ledger_in_postgresql(policy, postgres, monkeypatch, drill):
    monkeypatch.setenv("IDS_SECRET", hashlib.sha256(b"drills").hexdigest())
    plant(monkeypatch, drill.bug)
    policy = policy.model_copy(update={"ledger": {"url": postgres.url(), "id_key": "env:IDS_SECRET"}})
    assert "rows_ledgered" in {verdict.name for verdict in check(stage(policy)) if not verdict.passed}


@pytest.mark.parametrize("drill", quick(SHAPES), ids=lambda drill: drill.planted)
def test_a_release_of_another_shape_is_stopped_after_publication(policy, monkeypatch, drill):
    """By what `dptext check` calls, if no gate ran before: the bytes are those that were committed."""
    plant(monkeypatch, drill.bug)
    staged = stage(policy)
    publish(staged, [Verdict("rows_ledgered", passed=True, counts={}, message="", catches="")])
    found = next(verdict for verdict in check_published(Path(policy.sink), policy) if verdict.name == "rows_ledgered")
    assert not found.passed
    assert found.counts["misshapen"]
    assert (found.counts["different"], found.counts["uncommitted"]) == (0, 0)


def test_fewer_draws_than_were_charged_are_never_committed(policy, monkeypatch):
    """A mechanism that cuts a text by its content, and counts its draws after that."""
    right = computing.release

    def wrong(texts, ids, column):
        out = right(texts, ids, column)
        shard = Shard(column.mechanism, pa.array(texts).to_pylist(), pa.array(out.text).to_pylist())
        cut = cut_to_what_the_text_says(shard)
        counts = pa.array([len((text or "").split()) for text in cut], out.positions.type)
        return out._replace(text=pa.array(cut, pa.large_string()), positions=counts)

    monkeypatch.setattr(computing, "release", wrong)
    with pytest.raises(LedgerError, match=r"\d+ texts were released with another number of draws"):
        stage(policy)


def test_without_a_bug_nothing_is_stopped(policy, monkeypatch):
    plant(monkeypatch, lambda shard: shard.released)
    assert all(verdict.passed for verdict in check(stage(policy)))


@pytest.mark.parametrize("drill", LEAKS, ids=lambda drill: drill.planted)
def test_a_leak_on_the_way(bench, tmp_path, outcomes, drill):
    verdicts = bench.judge(lambda part: drill.bug(bench, part), tmp_path)
    stopped = {name for name, verdict in verdicts.items() if not verdict.passed}
    outcomes[drill.planted] = (drill, stopped)
    assert stopped >= drill.stops
    assert stopped


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.planted)
def test_a_way_around_the_guard(policy, outcomes, way):
    plan = way.plan(policy)
    assert plan.collect().height >= 90, "the plan itself runs, and gives its reader what it must not"
    with pytest.raises(GateError) as caught:
        guard(plan, policy=policy)
    outcomes[way.planted] = (way, {str(caught.value).splitlines()[0]})


def test_the_policys_own_release_passes_the_guard(policy):
    for source in (parquet, ipc, in_bytes):
        plan = source(policy).select("id", released(policy)).cache()
        assert guard(plan, policy=policy).collect().height == 90


def quote(shard):
    """A library quotes the text that it could not read."""
    raise ValueError(f"cannot read {next(text for text in shard.raw if text and SENTINEL in text)!r}")


def said(outcomes, planted, seen, stopper, text):
    """Note that a message holds no text; there must be a message."""
    assert planted in SAID
    outcomes[f"raw text in {planted}"] = ((seen, stopper), None)
    assert text
    assert SENTINEL not in text.lower()


def test_text_in_an_error_message(policy, monkeypatch, outcomes, caplog, capfd):
    plant(monkeypatch, quote)
    caplog.set_level("DEBUG")
    with pytest.raises(DPTextError) as caught:
        run(policy)
    told = "".join([*traceback.format_exception(caught.value), caplog.text, *capfd.readouterr()])
    seam = "`errors.seam`: what a library says is dropped, its cause and context, too"
    said(outcomes, "an error message", "libraries that quote a cell", seam, told)
    assert not any(
        SENTINEL.encode() in path.read_bytes() for path in Path(policy.ledger.url[10:]).parent.glob("ledger*")
    )


def test_text_in_dagster_metadata(policy, monkeypatch, outcomes, tmp_path):
    orchestration = pytest.importorskip("dptext_etl.orchestration", reason="dagster is not installed")
    (tmp_path / "policy.json").write_text("{}")
    plant(monkeypatch, quote)
    outcome = orchestration.materialize(policy, home=tmp_path / "home")
    assert not outcome.success
    kept = [path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert not any(SENTINEL.encode() in content for content in kept)
    own = "the assets hand on places and counts, never rows; failures are revealed again without their cause"
    said(outcomes, "Dagster's events", "an I/O manager's table of sampled rows", own, str(outcome.as_dict()))


def test_text_in_a_failing_expectation(policy, outcomes):
    gx = pytest.importorskip(
        "dptext_etl.checks.great_expectations.expectations", reason="great_expectations is not installed"
    )
    run(policy)
    record = gx.validate(pl.read_parquet(policy.source).with_columns(pl.col("text").fill_null("")), policy)
    assert not record.success
    own = "`checks.great_expectations`: counts alone, in every result format"
    said(outcomes, "a failing expectation", "Great Expectations #8780", own, json.dumps(record.as_dict()))


def test_text_in_a_panic(outcomes, capfd):
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        _kernel._defect(SENTINEL)
    told = "".join([str(caught.value), *capfd.readouterr()])
    said(outcomes, "a Rust panic", "`unwrap` of an error that holds it", "the kernel's panic hook", told)


@pytest.fixture
def modelled(policy):
    """The same texts, released by DP-MLM over a tiny model."""
    pytest.importorskip("transformers", reason="torch and transformers are not installed (extra: models)")
    mechanism = {"name": "dpmlm", "model": "example-masked", "epsilon": 5.0, "decoding": "parallel"}
    column = [{"name": "text", "mechanism": mechanism}]
    made = Policy.parse(policy.model_dump(by_alias=True, exclude_none=True) | {"column": column})
    made.column_policies()[0].mechanism.scorer()  # built while the model is whole
    return made


def charges(policy):
    """Return how many records were charged; a run that is refused before any charge makes no ledger."""
    if not Path(policy.ledger.url.removeprefix("sqlite:///")).exists():
        return 0
    with Ledger.open(policy.ledger.url, create=False) as ledger:
        return sum(item["records"] for item in ledger.reports.show())


@pytest.mark.parametrize("planted", MODELS)
def test_a_model_that_fails(modelled, monkeypatch, outcomes, planted):
    """Gates judge what leaves, and random words leave nothing: only public texts tell that a model fails."""
    from dptext_etl_models.inference.masked.model import MaskedModel

    seen, drill = [], MODELS[planted]
    monkeypatch.setattr(MaskedModel, "forward", drill.bug(MaskedModel.forward, seen))
    with pytest.raises(PolicyError, match="fails on public texts") as caught:
        stage(modelled, checkpoint=seen.append)
    assert SENTINEL not in str(caught.value)
    assert (charges(modelled) == 0) is drill.free
    assert charges(modelled) <= 30 + 20, "no more than one shard and its canary rows"
    outcomes[planted] = ((drill.seen, drill.stopper), None)


@pytest.mark.parametrize(("change", "passes"), [(lambda shard: shard.released, True), (shifted_by_one_row, False)])
def test_rows_of_a_model_are_not_shifted(modelled, monkeypatch, change, passes):
    plant(monkeypatch, change)
    gate = next(verdict for verdict in check(stage(modelled)) if verdict.name == "canary_rows_reproducible")
    assert gate.passed is passes
    assert gate.counts == {"rows": 24, "suspicious_columns": 1 - passes}


THERE = {
    "spark/test_drills.py": ["def test_the_logs_of_failing_queries_quote_no_text_and_no_secret"],
    "spark/test_guard.py": [
        "first_value(review) OVER", "def test_a_release_that_is_not_the_policys_is_refused",
        "def test_benchmarks_are_no_releases",
    ],
    "leaks/test_gates_frame_metadata.py": [
        "def test_raw_text_beside_the_cells_is_stopped_by_both_suites_and_not_quoted"
    ],
    "orchestration/test_lineage.py": [
        "def test_what_a_raw_asset_is_made_from_is_raw", "def test_what_one_step_makes_with_a_raw_asset_is_raw"
    ],
    "leaks/test_column_names.py": ["def test_refusals_name_places"],
    "leaks/test_error_locals.py": ["def test_every_door_that_meets_rows_is_bare"],
}  # fmt: skip


def test_drills_that_are_elsewhere_are_there(outcomes):
    for file, wanted in THERE.items():
        content = (PAGE.parents[2] / "tests" / file).read_text()
        assert [line for line in wanted if line not in content] == [], file
    outcomes.update({planted: (found, None) for planted, found in ELSEWHERE.items()})


def test_the_page_says_what_was_found(outcomes):
    if os.environ.get("DPTEXT_WRITE_PAGES"):
        pytest.skip("the page is being written")
    written = PAGE.read_text(encoding="utf-8")
    drills = [drill.planted for drill in (*BUGS, *LEAKS, *WAYS)]
    drills += [*MODELS, *(f"raw text in {where}" for where in SAID), *ELSEWHERE]
    assert not [planted for planted in drills if f"| {planted} |" not in written]
    rows = [line for line in page(outcomes).splitlines() if line.startswith("| ")]
    assert not [row for row in rows if row not in written]
