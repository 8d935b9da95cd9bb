"""Trainings of latent models as Dagster assets, at tiny sizes."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
dg = pytest.importorskip("dagster")

CHANGES = {
    "prune": {"stages": 2, "steps": 1, "rows": 2},
    "noise": {"epochs": 1, "steps": 2, "rows": 2},
    "adept": {"vocabulary": 20, "embedding": 4, "hidden": 4, "steps": 2, "rows": 2},
}


def test_models_are_trained_in_order_and_load(tmp_path):
    from dptext_etl_models.mechanisms.adept import Adept
    from dptext_etl_models.mechanisms.dpbart import DPBart
    from dptext_etl_models.orchestration import Trainings, training_assets

    corpus = tmp_path / "public.parquet"
    pq.write_table(pa.table({"text": [f"the other day number {n} was good" for n in range(200)]}), corpus)
    trainings = Trainings([str(corpus)], tmp_path / "models", scale="small", texts=60, length=8, changes=CHANGES)
    assets = training_assets(trainings, model="example-bart", epsilons=[250.0, 0.5])
    assert [asset.key.to_user_string() for asset in assets] == [
        "dpbart_pr",
        "dpbart_pr_plus_250",
        "dpbart_pr_plus_0_5",
        "adept",
    ]
    done = dg.materialize(assets, instance=dg.DagsterInstance.ephemeral())
    assert done.success
    metadata = done.asset_materializations_for_node("dpbart_pr")[0].metadata
    assert metadata["kept"].value == 24
    sizes = {"variant": "pr_plus", "length": 8, "epsilon": 250.0, "n_rec": 1000, "clip": 1.0}
    assert DPBart(model=str(tmp_path / "models" / "dpbart_pr_plus_250"), **sizes).latent_model.size == 8 * 24
    assert Adept(model=str(tmp_path / "models" / "adept"), epsilon=9.0, n_rec=1000).latent_model.size == 8
    assert "day number" not in repr([event.message for event in done.all_events])
