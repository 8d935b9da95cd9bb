"""A run over the files of the run before encodes nothing; whatever may have changed goes through all steps."""

import pytest

from dptext_etl import Ledger
from dptext_etl.errors import LedgerError
from dptext_etl.families.aggregate import contributions

from ..quick import quick
from ..synthetic_runs import SYNTHETIC, labeled, ref_of, used, verified


def test_an_unchanged_source_is_not_encoded_again(make_synthetic, monkeypatch, reviews, save):
    job = make_synthetic(synthetic={**SYNTHETIC, "per_subject": 2})
    first, before, spent = job.run(), job.files(), used(job)
    encodings = []
    real = contributions.encoded
    monkeypatch.setattr(contributions, "encoded", lambda *args: encodings.append(args) or real(*args))
    again = job.run()
    assert encodings == []
    assert "byte for byte" in again.notes[0]
    assert (again.version, again.changed, again.manifest) == (1, False, first.manifest)
    assert again.rows == {**first.rows, "new": 0, "replayed": 80}
    assert (again.gates, again.spend) == (first.gates, first.spend)
    assert (job.files(), used(job)) == (before, spent)
    save(labeled(reviews()), job.folder / "raw.parquet")
    assert "byte for byte" in job.run().notes[0]
    save(labeled(reviews()).reverse(), job.folder / "raw.parquet")
    assert job.run().manifest == first.manifest
    assert encodings
    assert (job.files(), used(job)) == (before, spent)
    assert verified(job) == []


@pytest.mark.parametrize("change", quick(["rows", "ledger", "name", "file"], first=2))
def test_what_may_have_changed_goes_through_all_steps(make_synthetic, change):
    job = make_synthetic()
    job.run()
    labels = {**SYNTHETIC["labels"], "names": {"money": "bank"}}
    if change in {"rows", "name"}:
        other = {**SYNTHETIC, **({"rows": 51} if change == "rows" else {"labels": labels})}
        with pytest.raises(LedgerError, match="the release holds another table"):
            job.run(synthetic=other)
    elif change == "file":
        next((job.folder / "published").glob("*.parquet")).unlink()
        assert "byte for byte" not in job.run().notes[0]
    else:
        with Ledger.open(str(job.folder / "ledger.db")) as ledger:
            ledger.releases.revoke(ref_of(job, ledger), "by hand")
        with pytest.raises(LedgerError, match="revoked"):
            job.run()
