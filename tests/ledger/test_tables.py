"""The plain tables of a ledger, and its views: balances, releases, and an export that no text can move."""

import json
import math
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from dptext_etl.cli.app import app
from dptext_etl.cli.terminal import public_view
from dptext_etl.column import INFINITE
from dptext_etl.errors import InputError
from dptext_etl.guarantee import ADDITIVE, steps
from dptext_etl.keys import IdForm
from dptext_etl.ledger import IdForms, Ledger, Scope
from dptext_etl.ledger.audit import Verification, charges
from dptext_etl.ledger.caps import LARGEST
from dptext_etl.ledger.holdings import Database
from dptext_etl.ledger.ledger_tables import SCHEMAS, in_units
from dptext_etl.ledger.reports import tracked_components
from dptext_etl.ledger.storage.hashed_ids import fold
from dptext_etl.ledger.storage.journal import id_ranges
from dptext_etl.ledger.types import State
from dptext_etl.policy import Cap
from tests import ledger_events as events

from ..ledger_kit import ID_KEY, reserve_batch
from .conftest import each_store

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spec" / "ledger-tables.md"


@pytest.fixture
def full(new_place):
    """A ledger in which everything happened that can, and a version without a person who was in it before."""
    place, key = str(new_place("full")), f"env:{ID_KEY}"
    events.write(place, key)
    with Ledger.open(place, key) as ledger:
        db = events.Writer(ledger)
        ledger.releases.retire([db.release()], "v1", "v2-0123456789ab", events.digest("later").hex(), 3, sink="here")
        ledger.people.forget("reviews", pa.array(["r1"]), pa.array([], pa.string()))
        yield ledger


def exported(ledger, folder, ids=()):
    counts = ledger.write_tables(folder, ids)
    tables = {name: pl.read_parquet(folder / f"{name}.parquet") for name in SCHEMAS}
    assert counts == {name: frame.height for name, frame in tables.items()}
    return tables


def steps_of(component, amounts):
    """Amounts of a table as the ledger counts them, exactly."""
    return [amount if math.isinf(amount) else round(Fraction(amount) * steps(component)) for amount in amounts]


@each_store
def test_the_tables_hold_what_verify_derives(full, tmp_path):
    tables = exported(full, tmp_path / "tables")
    db = full._db
    with db.store.snapshot():
        derived = Verification(Database(db.store, None))
    assert not derived.problems
    assert Counter(tables["event"]["kind"]) == derived.events
    assert dict(tables["event"].select("event", "event_hash").iter_rows()) == {
        entry.seq: entry.hash.hex() for entry in db.journal.entries()
    }
    contents, counted = derived.contents, ("records", "committed", "expired", "aborted")
    for row in tables["release"].iter_rows(named=True):
        said, key = contents.releases[row["release_id"]], (row["release_id"], row["nonce"])
        assert [row[name] for name in ("dataset", "text_column", "release", "cfg")] == [
            getattr(said, name) for name in ("dataset", "column", "release", "cfg")
        ]
        assert row["guarantee"] == said.facts["class"]
        assert row["revoked_by"] == contents.revoked.get((said.dataset, said.release))
        assert {name: row[name] for name in counted} == {name: contents.count(key)[name] for name in counted}
        of_release = (pl.col("release_id") == key[0]) & (pl.col("nonce") == key[1]) & ~pl.col("canary")
        charged = tables["record"].filter(of_release)["reserved_eps_pure"].max() or 0
        assert row["largest_eps_pure"] == charged
    assert {
        (row["release_id"], row["nonce"], row["version"]): (row["manifest"], row["rows"])
        for row in tables["publication"].iter_rows(named=True)
    } == {
        (*key, version): (item.manifest, item.rows)
        for key, versions in contents.publications.items()
        for version, item in versions.items()
    }
    held = tables["record"].group_by("batch", maintain_order=True).agg("batch_row", "state")
    assert {batch: states for batch, _, states in held.iter_rows()} == {
        seq: [State(state).name for state in states] for seq, states in derived.states.items()
    }
    assert all(rows == [*range(len(rows))] for rows in held["batch_row"].to_list())


def test_balances_are_the_sums_that_verify_derives_and_those_of_the_records(full, tmp_path):
    tables = exported(full, tmp_path / "tables")
    db, compared = full._db, 0
    with db.store.snapshot():
        derived = Verification(Database(db.store, None))
        for number, pinned in derived.contents.scopes.items():
            of_scope = (pl.col("scope") == pinned.name) & (pl.col("period") == pinned.period)
            stored = tables["balance"].filter(of_scope)
            assert set(stored["unit"]) == {pinned.unit} if stored.height else True
            batches = derived.contents.of_scope.get(number, [])
            for at, component in enumerate(tracked_components(pinned)):
                mine = stored.filter(pl.col("component") == component)
                table = dict(zip(mine["unit_hash"], steps_of(component, mine["used"]), strict=True))
                if pinned.measure is not None:
                    for within in id_ranges(sum(len(derived.states[seq]) for seq in batches)):
                        units, _, amounts = charges(db, derived, within, batches, tracked_components(pinned))
                        part = fold(units, amounts)
                        hashes = [
                            f"{hi:016x}{lo:016x}" for hi, lo in zip(*map(np.ndarray.tolist, part.ids), strict=True)
                        ]
                        derived_by_unit = dict(zip(hashes, part.values[at].tolist(), strict=True))
                        given_back = dict.fromkeys(derived_by_unit.keys() - table.keys(), 0)
                        assert derived_by_unit == table | given_back
                    assert set(steps_of(component, mine["cap"])) <= {pinned.limits[at]}
                    assert steps_of(component, mine["remaining"]) == [
                        pinned.limits[at] - used for used in table.values()
                    ]
                rows = tables["record"].filter(of_scope & ~pl.col("canary") & (pl.col("state") != "ABORTED"))
                summed = Counter()
                for digits, amount in zip(rows["unit_hash"], steps_of(component, rows[component]), strict=True):
                    summed[digits] += amount
                assert table == dict(summed)
                compared += len(table)
    assert compared >= 10


def test_a_record_says_what_became_of_it(kit, tmp_path):
    canary = np.array([False, False, True])
    ref = kit.ref(refundable=True)
    kit.reserve(["a", "b", "planted"], ["ann", "bob", None], [2, 3, 4], cap=9, refs=[ref], canary=canary)
    kit.commit(["a"], ref=ref, positions=[1], spent=[500_000])
    kit.reserve(["c"], ["bob"], 1, cap=9, refs=[ref], job="other")
    kit.ledger.abort("other", compute_never_started=True, reason="never computed")
    rows = exported(kit.ledger, tmp_path / "tables")["record"].rows(named=True)
    names = ("state", "canary", "reserved_positions", "positions", "reserved_eps_pure", "eps_pure", "eps_tight")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("COMMITTED", False, 2, 1, 2.0, 0.5, 2.0),
        ("RESERVED", False, 3, None, 3.0, 3.0, 3.0),
        ("RESERVED", True, 4, None, 4.0, 0.0, 0.0),
        ("ABORTED", False, 1, None, 1.0, 0.0, 0.0),
    ]
    assert [row["digest"] is not None for row in rows] == [True, False, False, False]
    assert {rows[0]["record_hash"], rows[1]["unit_hash"]} <= {
        *exported(kit.ledger, tmp_path / "of", ["a", "bob"])["asked"]["hash"]
    }
    assert rows[2]["unit_hash"] is None


def test_no_id_and_no_text_stands_in_any_table(kit, tmp_path):
    names = [f"findable-{i:03d}" for i in range(50)]
    kit.reserve(names, [f"person-{i}" for i in range(50)], cap=9, texts="a sentence to be found")
    kit.commit(names[:20], texts="a sentence to be found", outputs="released words")
    identities = kit.keys(kit.ref(), names, "a sentence to be found").to_pylist()
    for frame in exported(kit.ledger, tmp_path / "tables").values():
        written = frame.write_ndjson()
        assert not [text for text in ("findable", "person-", "sentence", "released words") if text in written]
        assert not [key for key in identities if key.hex()[:32] in written], "identities follow from texts"


@example(9_007_199_254_740_975, "eps_pure")  # 53 bits: the nearest float is below it, and rounds to another amount
@given(st.integers(0, INFINITE), st.sampled_from(ADDITIVE))
def test_an_amount_in_units_is_exact_or_an_upper_bound(amount, component):
    (found,) = in_units(component, np.array([amount])).tolist()
    if amount == INFINITE:
        assert found == math.inf
    elif amount <= 1 << 52:
        assert round(Fraction(found) * steps(component)) == amount
        assert found == amount / steps(component)
    else:
        assert Fraction(found) >= Fraction(amount, steps(component))


def test_an_export_takes_no_place_that_is_taken_and_leaves_nothing_half(kit, tmp_path, monkeypatch):
    kit.reserve(["a"])
    (tmp_path / "empty").mkdir()
    kit.ledger.write_tables(tmp_path / "empty")
    with pytest.raises(InputError, match="holds something already"):
        kit.ledger.write_tables(tmp_path / "empty")
    with pytest.raises(InputError, match="cannot be written"):
        kit.ledger.write_tables(tmp_path / "no" / "folder")
    monkeypatch.setattr(kit.db.journal, "read", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        kit.ledger.write_tables(tmp_path / "broken")
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["empty"]


def test_the_columns_are_those_of_the_page():
    section = PAGE.read_text()
    found = {}
    for table, rows in re.findall(r"^### `(\w+)`.*?\n((?:.|\n)*?)(?=^### |\Z)", section, re.MULTILINE):
        for names, kind in re.findall(r"^\| (`.*?`) \| (\w+) \|", rows, re.MULTILINE):
            found.setdefault(table, {}).update(dict.fromkeys(re.findall(r"`(\w+)`", names), kind))
    kinds = {
        "int64": "integer",
        "string": "text",
        "bool": "boolean",
        "double": "float",
        "timestamp[ms, tz=UTC]": "time",
    }
    assert found == {name: {field.name: kinds[str(field.type)] for field in schema} for name, schema in SCHEMAS.items()}
    assert [list(columns) for columns in found.values()] == [schema.names for schema in SCHEMAS.values()]


@each_store
def test_a_question_is_answered_by_duckdb(kit, tmp_path):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    forms = IdForms(IdForm("string"), IdForm("string", normalize=("casefold",)))
    kit.reserve(["a", "b", "c"], ["ann", "ann", "bob"], [2, 3, 4], cap=9, forms=forms)
    kit.commit(["a"])
    key = ["--id-key", f"env:{ID_KEY}"] if "://" in kit.place else []
    for person, found in (("ANN", [("COMMITTED", 2.0), ("RESERVED", 3.0)]), ("nobody", [])):
        folder = tmp_path / person
        done = CliRunner().invoke(app, ["ledger", "export", str(folder), "--ledger", kit.place, "--id", person, *key])
        assert done.exit_code == 0, done.output
        sql = f"""
            SELECT state, SUM(eps_pure) FROM '{folder}/record.parquet' JOIN '{folder}/asked.parquet' ON unit_hash = hash
            GROUP BY state ORDER BY state"""
        assert duckdb.connect().sql(sql).fetchall() == found
    done = CliRunner().invoke(app, ["ledger", "export", "--ledger", kit.place, "--id", "a", *key])
    assert done.exit_code == 2
    assert "name the folder" in str(done.exception) + done.output


def test_without_a_folder_the_public_view_is_printed(kit, tmp_path):
    kit.reserve(["a"], cap=9)
    run = CliRunner().invoke
    printed = json.loads(run(app, ["ledger", "export", "--ledger", kit.place]).stdout)
    assert printed == public_view(kit.ledger.reports.export())
    assert printed["amounts"] == "epsilon, rho, delta"
    folder = tmp_path / "tables"
    done = run(app, ["ledger", "export", str(folder), "--ledger", kit.place, "--json"])
    assert json.loads(done.stdout)["tables"] == {
        "record": 1, "balance": 1, "event": 3, "release": 1, "publication": 0, "asked": 0,
    }  # fmt: skip
    assert sorted(path.stem for path in folder.iterdir()) == sorted(SCHEMAS)


SCOPE = Scope("reviews", "2026")


def costs_of(facts, positions):
    assert facts["mechanism"] == "toy"
    return {"eps_approx": positions * 1_000_000, "delta": np.full(len(positions), 10)}


@each_store
def test_further_releases_are_judged_by_each_component(kit):
    """Ann has used 6 and asks for 6, Bob has used 2 and asks for 1; records that were given back do not count."""
    cap = Cap(measure="approx", epsilon=20, delta=55e-15, period="2026")

    def reserve(ids, people, epsilons, release, **options):
        amounts = np.array(epsilons)
        spends = {"eps_approx": amounts * 1_000_000, "delta": np.full(len(ids), 10)}
        charge = kit.charge(kit.ref(release=release), ids, amounts, **spends)
        reserve_batch(kit.ledger, "job", SCOPE, cap, pa.array(ids), pa.array(people, pa.string()), [charge], **options)

    reserve(["z"], ["bob"], [1], "r1")
    reserve(["lost"], ["ann"], [9], "r2")
    kit.ledger.abort("job", compute_never_started=True)
    reserve(["z"], ["bob"], [1], "r1")
    reserve(["a", "b", "c", "x"], ["ann", "ann", "bob", None], [1, 5, 1, 9], "r2", canary=np.arange(4) == 3)
    assert kit.ledger.further(SCOPE, cap, {"review": costs_of}, None)["units"] == {1: 1, 3: 1}, "delta for Ann, too"
    assert kit.ledger.further(SCOPE, cap, {"review": costs_of}, 1)["units"] == {2: 1, 3: 1}, "5 at most"
    wide = cap.model_copy(update={"delta": 1e-6})
    assert kit.ledger.further(SCOPE, wide, {"review": costs_of}, None)["units"] == {2: 1, 18: 1}
    huge = {"review": lambda facts, n: {"eps_approx": np.full(len(n), LARGEST - 1), "delta": 0 * n}}
    assert kit.ledger.further(SCOPE, wide, huge, 1000)["units"] == {0: 2}, "a product beyond 64 bits does not wrap"
    other = {"title": lambda facts, n: {"eps_approx": np.full(len(n), 6_000_000 + (facts is not None)), "delta": 0 * n}}
    assert kit.ledger.further(SCOPE, wide, other, None)["units"] == {1: 1, 3: 1}, "as many records as in another column"


@each_store
def test_charges_of_a_person_are_listed_by_release_and_day(kit):
    """Records that were given back do not count, refunds do, and each person has the own list, in the order asked."""
    review, title = kit.ref(), kit.ref("title", refundable=True)
    kit.reserve(["a", "b"], ["ann", "ann"], [2, 1], cap=20, refs=[review])
    kit.reserve(["c", "d"], ["ann", "bob"], [4, 4], cap=20, refs=[title], job="titles")
    kit.commit(["c"], ref=title, spent=[1_000_000], job="titles")
    kit.reserve(["e"], ["ann"], 3, cap=20, refs=[review], job="undone")
    kit.ledger.abort("undone", compute_never_started=True)
    bob, eve, ann = kit.ledger.reports.charges(SCOPE, pa.array(["bob", "eve", "ann"]))
    day = kit.db.contents.latest().batches[max(kit.db.contents.batches)].ts[:10]
    of = {"date": day, "dataset": "reviews", "release": "r1"}
    assert ann == [
        {**of, "column": "review", "records": 2, "used": {"eps_pure": 3_000_000}},
        {**of, "column": "title", "records": 1, "used": {"eps_pure": 1_000_000}},
    ]
    assert (eve, bob) == ([], [{**of, "column": "title", "records": 1, "used": {"eps_pure": 4_000_000}}])
    assert sum(item["used"]["eps_pure"] for item in ann) == 1_000_000 * kit.used("ann")[0]


def test_remaining_of_an_unused_scope(kit):
    left = kit.ledger.remaining(Scope("other"), pa.array(["ann"]))
    assert (left.units, left.measure, left.used, left.left) == (0, None, {"eps_pure": {}}, {})
    assert left.asked == [{"eps_pure": {"used": 0}}]
    records = kit.ledger.remaining(Scope("other", unit="record"), pa.array(["r"]))
    assert records.unit == "record"


@each_store
def test_show_counts_and_says_what_is_claimed(kit):
    kit.reserve(["a", "b", "c"], epsilons=[1, 2, 7], cap=9)
    kit.reserve(["planted"], [None], 1, cap=9, canary=np.array([True]))
    kit.commit(["a"])
    kit.ref(nonce=1)
    kit.ref("title")
    review, title = kit.ledger.reports.show()
    assert json.loads(json.dumps(review)) == review
    picked = {name: review[name] for name in ("records", "canaries", "committed", "pending", "max_eps_pure", "class")}
    assert picked == {
        "records": 4, "canaries": 1, "committed": 1, "pending": 3, "max_eps_pure": 7_000_000, "class": "COND_PURE"
    }  # fmt: skip
    assert review["log10_odds"] == 3.041
    assert title["records"] == 0


def test_no_number_of_the_export_depends_on_a_text(kit, new_kit, new_place):
    """Two histories with the same public facts and other lengths, outputs, changes and failures."""
    other = new_kit(new_place("other"))
    for which, each in enumerate((kit, other)):
        each.reserve(["a", "b", "c"], ["ann", "ann", "bob"], [1 + which, 2, 3 * which], cap=50, texts=f"text {which}")
        each.commit(["a", "b", "c"][: 3 - which], texts=f"text {which}", outputs=f"output {which}")
        each.reserve(["a"], ["ann"], 9, cap=50, texts="text 0")
    first, second = kit.ledger.reports.export(), other.ledger.reports.export()
    assert first == second
    assert json.loads(json.dumps(first))["datasets"]["reviews"]["subjects"] == {"subject": 2}
    assert "worst_case" in first["datasets"]["reviews"]["releases"][0]


def test_the_export_leaves_benchmarks_out(kit):
    kit.ref(publishable=False, release="bench")
    assert kit.ledger.reports.export()["datasets"] == {}
