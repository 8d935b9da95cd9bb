"""`check_published`: verdicts about a publication without its raw data."""

import json
import shutil

import polars as pl
import pytest

from dptext_etl import Ledger, run
from dptext_etl.checks import CANARY, Stage, gate_descriptions
from dptext_etl.checks.published import check_published
from dptext_etl.errors import GateError, InputError, KeyReferenceError
from dptext_etl.files import sha256

NAMES = ["published_files", "raw_column_absent", "canary_text_absent", "words_in_output_set", "rows_ledgered"]
NAMES += ["one_text_per_record"]


@pytest.fixture(scope="module", params=["parquet", "csv", "ndjson"])
def published(request, bench, tmp_path_factory):
    """The bench's rows, published by a separate real run, in each format."""
    folder = tmp_path_factory.mktemp("published")
    raw = pl.read_parquet(bench.policy.source)
    getattr(raw, f"write_{request.param}")(folder / f"raw.{request.param}")
    changes = {
        "dataset": f"reviews {request.param}",
        "source": str(folder / f"raw.{request.param}"),
        "sink": str(folder / "out"),
        "staging": str(folder / "inside"),
        "ledger": bench.policy.ledger.model_copy(update={"url": f"sqlite:///{folder / 'ledger.db'}"}),
    }
    policy = bench.policy.model_copy(update=changes)
    run(policy)
    return policy, folder / "out"


def judge(released, policy):
    return {verdict.name: verdict for verdict in check_published(released, policy)}


def failed(verdicts):
    return {name for name, verdict in verdicts.items() if not verdict.passed}


def test_a_publication_passes(published):
    policy, folder = published
    verdicts = judge(folder, policy)
    assert list(verdicts) == list(gate_descriptions(policy, Stage.PUBLISHED)) == NAMES
    assert not failed(verdicts)
    assert verdicts["rows_ledgered"].counts["cells"] == 2 * 250
    one = next(path for path in sorted(folder.glob("part-*")))
    assert list(judge(one, policy)) == NAMES[1:]
    assert not failed(judge(one, policy))


def test_files_that_changed_after_their_gates(published, tmp_path):
    policy, folder = published
    copy, manifest = tmp_path / "out", tmp_path / "out.manifest.json"

    def fresh():
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        shutil.copytree(folder, copy)
        shutil.copy(folder.with_name("out.manifest.json"), manifest)
        assert not failed(judge(copy, policy))
        return sorted(copy.glob("part-*"))

    parts = fresh()
    if parts[0].suffix != ".parquet":
        parts[0].write_bytes(parts[0].read_bytes() + b"\n")
        assert "published_files" in failed(judge(copy, policy))
    parts = fresh()
    parts[1].unlink()
    assert failed(judge(copy, policy)) == {"published_files"}
    parts = fresh()
    shutil.copy(parts[0], parts[0].with_name("part-99999.extra"))
    assert failed(judge(copy, policy)) == {"published_files"}
    fresh()
    facts = json.loads(manifest.read_text())
    facts["parts"][0]["path"] = "../../ledger.db"
    manifest.write_text(json.dumps(facts))
    assert "published_files" in failed(judge(copy, policy))


def test_a_manifest_written_anew_does_not_hide_what_changed(published, tmp_path):
    """Rows cut, a kept column edited, claims rewritten: files and manifest agree, the ledger does not."""
    policy, folder = published
    copy, manifest = tmp_path / "out", tmp_path / "out.manifest.json"
    shutil.copytree(folder, copy)
    facts = json.loads(folder.with_name("out.manifest.json").read_text())
    shown = sorted(copy.glob("part-*"))
    kind = shown[0].suffix[1:]
    cut = getattr(pl, f"read_{kind}")(shown[0]).head(-1).with_columns(pl.lit(5, pl.Int64).alias("stars"))
    getattr(cut, f"write_{kind}")(shown[0])
    digest = sha256(shown[0])
    named = shown[0].rename(copy / f"part-00000-{digest[:16]}.{kind}")
    facts["parts"][0] |= {"path": f"v1/{named.name}", "rows": cut.height, "sha256": digest}
    facts["rows"] -= 1
    for column in facts["columns"]:
        column["epsilon"] = column["largest_epsilon"] = 0.01
    manifest.write_text(json.dumps(facts, indent=1, ensure_ascii=True) + "\n")
    verdicts = judge(copy, policy)
    assert failed(verdicts) == {"published_files"}
    counts = verdicts["published_files"].counts
    assert {name for name, count in counts.items() if count} == {"files", "unrecorded_manifest"}


def test_another_release_or_configuration(published):
    policy, folder = published
    other = policy.model_copy(update={"release": "r2"})
    assert failed(judge(folder, other)) == {"published_files", "rows_ledgered"}
    mechanism = {**policy.columns[0].model_dump()["mechanism"], "epsilon": 1.0}
    column = policy.columns[0].model_copy(update={"mechanism": mechanism})
    changed = policy.model_copy(update={"columns": (column, policy.columns[1])})
    assert failed(judge(folder, changed)) == {"published_files", "rows_ledgered"}


def test_a_table_with_raw_text_or_canary_rows(bench, tmp_path):
    fine = bench.published
    assert not failed({verdict.name: verdict for verdict in check_published(fine, bench.policy, bench.ledger)})
    staged = pl.concat(bench.released)
    left_in = {item.name: item for item in check_published(staged.drop(CANARY), bench.policy, bench.ledger)}
    assert failed(left_in) == {"rows_ledgered"}
    assert left_in["rows_ledgered"].counts["uncommitted"] == 2 * 24
    marked = {item.name: item for item in check_published(staged, bench.policy, bench.ledger)}
    assert failed(marked) == {"raw_column_absent"}
    raw = pl.read_parquet(bench.policy.source)
    through = {item.name: item for item in check_published(raw, bench.policy, bench.ledger)}
    assert failed(through) == {"words_in_output_set", "rows_ledgered"}
    without = {item.name: item for item in check_published(fine.drop("id"), bench.policy, bench.ledger)}
    assert failed(without) == {"raw_column_absent", "rows_ledgered"}
    token = min(bench.run.canaries[0].tokens)
    text = fine.with_columns(pl.lit(token.upper()).alias("stars"))
    renamed = {item.name: item for item in check_published(text, bench.policy, bench.ledger)}
    assert failed(renamed) == {"canary_text_absent", "raw_column_absent"}


def test_checking_writes_nothing(bench, tmp_path):
    path = bench.policy.ledger.url.removeprefix("sqlite:///")
    before = len(bench.ledger.reports.show())
    check_published(bench.published, bench.policy.model_copy(update={"release": "never"}))
    with Ledger.open(path, create=False, read_only=True) as ledger:
        assert len(ledger.reports.show()) == before


def test_what_cannot_be_checked_is_said(bench, tmp_path):
    with pytest.raises(InputError, match=r"nothing is published there"):
        check_published(tmp_path, bench.policy, bench.ledger)
    with pytest.raises(InputError, match="neither a folder nor a file"):
        check_published(tmp_path / "nothing.parquet", bench.policy, bench.ledger)
    (tmp_path / "table.txt").write_text("x")
    with pytest.raises(InputError, match="Parquet, CSV or NDJSON"):
        check_published(tmp_path / "table.txt", bench.policy, bench.ledger)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1xxxx")
    with pytest.raises(GateError, match="evaluating the gates failed"):
        check_published(tmp_path / "broken.parquet", bench.policy, bench.ledger)
    with pytest.raises(KeyReferenceError):
        check_published(bench.published, bench.policy.model_copy(update={"key": "env:NOT_SET_SECRET"}), bench.ledger)
