"""`init` writes a policy that works, and says what it guessed."""

import tomllib

import polars as pl
import pytest

from dptext_etl import Policy, _kernel, run
from dptext_etl.errors import InputError
from dptext_etl.runner import init, plan


def guessed(folder, frame, save, name="raw.parquet"):
    save(frame, folder / name)
    text = init(folder / name)
    (folder / "privacy.toml").write_text(text)
    return tomllib.loads(text), text


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".ndjson"])
def test_the_policy_works(tmp_path, reviews, save, small_vectors, suffix):
    values, text = guessed(tmp_path, reviews().drop("note"), save, f"raw{suffix}")
    assert (values["id"], values["subject"], values["keep"]) == ("id", "user_id", [])
    assert [item["name"] for item in values["column"]] == ["review"]
    assert '"stars", "secret"' in text
    small = text.replace(
        'name = "custext", epsilon = 2.0', f'name = "custext", epsilon = 2.0, k = 5, vectors = "{small_vectors}"'
    )
    (tmp_path / "privacy.toml").write_text(small)
    _kernel.Secret().write(str(tmp_path / "dptext.key"))
    policy = Policy.load(tmp_path / "privacy.toml")
    assert plan(policy).over_cap == {"records": 0, "units": 0}
    summary = run(policy)
    assert summary.rows["released"] == 240
    assert (tmp_path / "published" / "raw.manifest.json").exists()
    assert (tmp_path / "ledger.db").exists()


def test_every_entry_is_explained(tmp_path, reviews, save):
    _, text = guessed(tmp_path, reviews(), save)
    assert text.count("#") > 12
    assert "guessed" in text


def test_no_person_means_records(tmp_path, reviews, save):
    values, text = guessed(tmp_path, reviews().drop("user_id"), save)
    assert values["unit"] == "record"
    assert "subject" not in values
    assert "k times the loss" in text


def test_odd_names_are_quoted(tmp_path, reviews, save):
    frame = reviews().rename({"review": 'the "text"\\', "stars": "é\n"})
    values, _ = guessed(tmp_path, frame, save)
    assert values["column"][0]["name"] == 'the "text"\\'


def test_no_values_are_written(tmp_path, reviews, save, sentinel):
    _, text = guessed(tmp_path, reviews(), save)
    assert sentinel not in text
    assert "r00003" not in text


def test_what_cannot_be_guessed(tmp_path, reviews, save):
    save(reviews().drop("review", "secret", "note"), tmp_path / "no_text.parquet")
    with pytest.raises(InputError, match="looks like text"):
        init(tmp_path / "no_text.parquet")
    save(reviews().drop("secret").with_columns(id=pl.lit("same")), tmp_path / "no_id.parquet")
    with pytest.raises(InputError, match="every record needs an id"):
        init(tmp_path / "no_id.parquet")
    with pytest.raises(InputError, match="no file"):
        init(tmp_path / "absent.parquet")
