"""Types that a sink or a gate cannot hold are refused before the charge, by a plan as by a run."""

import polars as pl
import pytest

from dptext_etl.errors import DPTextError, InputError
from dptext_etl.polars import released, run_frame

from ..quick import quick
from ..refusals import foretold
from ..review_jobs import make_reviews

STARS = pl.col("stars")
UNFIT = {
    "Int128": (STARS.cast(pl.Int128), {"parquet", "ndjson", "csv"}),
    "UInt128": (STARS.cast(pl.UInt128), {"parquet", "ndjson", "csv"}),
    "List of Int128": (pl.concat_list(STARS.cast(pl.Int128)), {"parquet", "ndjson", "csv"}),
    "Struct of 1 field (UInt128)": (pl.struct(STARS.cast(pl.UInt128)), {"parquet", "ndjson", "csv"}),
    "Map of Int64 to Int128": (
        pl.concat_list(pl.struct(key=STARS, value=STARS.cast(pl.Int128))).cast(pl.Map(pl.Int64, pl.Int128)),
        {"parquet", "ndjson", "csv"},
    ),
    "Binary": (STARS.cast(pl.String).cast(pl.Binary), {"ndjson", "csv"}),
    "List of Binary": (pl.concat_list(STARS.cast(pl.String).cast(pl.Binary)), {"ndjson", "csv"}),
    "Map of Int64 to Int64": (
        pl.concat_list(pl.struct(key=STARS, value=STARS)).cast(pl.Map(pl.Int64, pl.Int64)),
        {"ndjson", "csv"},
    ),
    "Duration(time_unit='us')": (pl.duration(days=STARS), {"csv"}),
    "Array(1) of Int64": (pl.concat_list(STARS).list.to_array(1), {"csv"}),
    "Float16": (STARS.cast(pl.Float16), set()),
    "Time": (pl.time(STARS), set()),
    "Null": (pl.lit(None), set()),
}


FIRST = ("Struct of 1 field (UInt128)", "List of Binary", "Duration(time_unit='us')", "Time")


@pytest.mark.parametrize("kind", quick(sorted(UNFIT, key=lambda kind: kind not in FIRST), first=len(FIRST)))
def test_a_kept_column_fits_its_sink_or_is_refused_before_the_charge(make_job, kind):
    made, unfit = UNFIT[kind]
    raw = make_reviews(40).with_columns(kept=made)
    job = make_job()
    for file_format in ("parquet", "ndjson", "csv"):
        policy = job.policy(keep=["kept"], release=file_format, sink=str(job.folder / f"{file_format}.{file_format}"))
        if file_format in unfit:
            with pytest.raises(InputError) as caught:
                run_frame(raw, policy)
            assert f"column 'kept' of type {kind} cannot be in a" in str(caught.value)
        else:
            assert run_frame(raw, policy).published_rows == 40
            assert released(policy.sink).collect().height == 40
    if len(unfit) == 3:
        assert not (job.folder / "ledger.db").exists()


@pytest.mark.parametrize("sink", ["/proc/out", "/sys/out/deeper"])
def test_a_plan_and_a_run_refuse_a_sink_of_the_kernel(make_job, sink):
    job = make_job()
    with pytest.raises(DPTextError) as caught:
        job.run(sink=sink)
    assert foretold(job, sink=sink)[2] == caught.value.message
    assert not (job.folder / "ledger.db").exists()
