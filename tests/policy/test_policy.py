"""A policy names its error in one sentence, and never repeats a value."""

import json
import pickle

import pytest

from dptext_etl import ColumnPolicy, Ledger, Policy, _kernel
from dptext_etl.errors import DisclosureError, KeyReferenceError, PolicyError
from dptext_etl.guarantee import Disclosure
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.policy import Cap, LedgerSpec
from dptext_etl.policy.terms import anchored

FACTS = {"dataset": "reviews", "column": "review", "release": "2026-11", "key": "env:A_SECRET"}
CUSTEXT = {"name": "custext", "epsilon": 2.0}

TOML = """
dataset = "reviews"
release = "2026-11"
source  = "raw/reviews.parquet"
sink    = "published/reviews"
id      = "id"
subject = "user_id"
keep    = ["stars", "date"]
key     = "file:noise.key"
ledger  = { url = "sqlite:///ledger.db", id_key = "file:ledger-id.key" }
cap     = { measure = "pure", epsilon = 2000, period = "2026" }
[[column]]
name = "review"
mechanism = { name = "custext", epsilon = 2.0, k = 20 }
allow = ["cluster"]
"""


def policy(**changes):
    import tomllib

    return Policy.parse({**tomllib.loads(TOML), **changes})


def test_a_column_policy_takes_a_mechanism_or_plain_data():
    built = ColumnPolicy(**FACTS, mechanism=CUSTEXT, allow={"cluster"})
    assert built.mechanism == CusText(epsilon=2.0)
    assert built.allow == {Disclosure.CLUSTER}


def test_a_disclosure_needs_consent_and_the_refusal_prints_the_line():
    with pytest.raises(DisclosureError, match=r'allow = \["cluster"\]') as caught:
        ColumnPolicy(**FACTS, mechanism=CUSTEXT)
    assert "output set" in str(caught.value)
    with pytest.raises(DisclosureError, match=r'allow = \["cluster", "stopwords"\]'):
        ColumnPolicy(**FACTS, mechanism={**CUSTEXT, "variant": "plus"}, allow={"cluster"})


@pytest.mark.parametrize(
    ("mechanism", "said"),
    [
        ({"name": "nonesuch", "epsilon": 1.0}, "available: "),
        ({"epsilon": 1.0}, "needs a name"),
        ({**CUSTEXT, "epsilon": 0}, "must be above 0"),
        ({**CUSTEXT, "epsilon": -1}, "must be above 0"),
        ({**CUSTEXT, "epsilon": float("nan")}, "finite"),
        ({**CUSTEXT, "epsilon": float("inf")}, "finite|must be at most"),
        ({**CUSTEXT, "k": 1}, "must be at least 2"),
        ({**CUSTEXT, "kk": 3}, "kk"),
        ({**CUSTEXT, "norm": "row"}, 'mode "faithful"'),
        ({**CUSTEXT, "variant": "aggressive"}, "'plain' or 'plus'"),
    ],
)
def test_bad_mechanisms(mechanism, said):
    with pytest.raises(PolicyError, match=said):
        ColumnPolicy(**FACTS, mechanism=mechanism, allow={"cluster"})


def test_bad_values_are_not_repeated():
    with pytest.raises(PolicyError) as caught:
        ColumnPolicy(**{**FACTS, "nonce": "my secret value"}, mechanism=CUSTEXT, allow={"cluster"})
    assert "my secret value" not in str(caught.value)
    assert caught.value.__context__ is None


KEY = "5b" * 31 + "c4"
COLUMN = {**FACTS, "mechanism": CUSTEXT, "allow": {"cluster"}}
WAYS = {
    "column": lambda key, _: ColumnPolicy(**{**COLUMN, "key": key}),
    "column from data": lambda key, _: ColumnPolicy.model_validate({**COLUMN, "key": key}),
    "column unchecked": lambda key, _: ColumnPolicy.model_construct(**{**COLUMN, "key": key}),
    "column copied": lambda key, _: ColumnPolicy(**COLUMN).model_copy(update={"key": key}),
    "policy": lambda key, _: policy(key=key),
    "policy unchecked": lambda key, _: Policy.model_construct(**{**dict(policy()), "key": key}),
    "policy copied": lambda key, _: policy().model_copy(update={"key": key}),
    "policy of a file": lambda key, folder: Policy.load(written(folder, TOML.replace('"file:noise.key"', repr(key)))),
    "id key": lambda key, _: LedgerSpec(url="l.db", id_key=key),
    "id key of a file": lambda key, folder: Policy.load(
        written(folder, TOML.replace('"file:ledger-id.key"', repr(key)))
    ),
    "ledger": lambda key, folder: Ledger.open(folder / "l.db", key),
}
"""Every way to say a key: each refuses one that is written out, so that no policy, plan or JSON can hold it."""


def written(folder, text):
    path = folder / "privacy.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "form", ["{}", "  {} ", "hex:{}", "env:{}", "file:{}", "file:/etc/{}", "file:{}/", "file:{}.key"]
)
def test_a_key_that_is_written_out_is_refused_where_a_policy_is_built(way, form, tmp_path):
    for key in (KEY, KEY.upper()):
        with pytest.raises(KeyReferenceError, match=r"may be a key itself(.|\n)*dptext key new PATH") as caught:
            WAYS[way](form.format(key), tmp_path)
        assert key[:6] not in str(caught.value)
        assert caught.value.__context__ is None


@pytest.mark.parametrize("way", [way for way in WAYS if "file" not in way])
@pytest.mark.parametrize(
    "key",
    [b"5" * 32, bytearray(32), _kernel.Secret(), "5bQc" * 11, "noise.key", "env:", "env:5b c4", "file:", "file: ", ""],
)
def test_a_key_is_given_by_reference(way, key, tmp_path):
    with pytest.raises(KeyReferenceError, match="by reference") as caught:
        WAYS[way](key, tmp_path)
    assert not any(part in str(caught.value) for part in ("5b", "555", "noise.key"))


def test_the_variable_of_a_key_says_secret():
    with pytest.raises(KeyReferenceError, match="SECRET in its name"):
        policy(key="env:NOISE_KEY")
    for name in ("DPTEXT_SECRET", "my_secret", "a-secret.b"):
        assert policy(key=f"env:{name}").key == f"env:{name}"


def test_a_changed_copy_is_checked_like_a_new_policy():
    column = ColumnPolicy(**COLUMN)
    assert column.model_copy(update={"release": "r2"}) == ColumnPolicy(**{**COLUMN, "release": "r2"})
    assert policy().model_copy(update={"publish": False}) == policy(publish=False)
    assert column.model_copy() == column
    for one, update in ((column, {"nonce": -1}), (column, {"color": "red"}), (policy(), {"subject": None})):
        with pytest.raises(PolicyError):
            one.model_copy(update=update)
    with pytest.raises(DisclosureError, match="cluster"):
        column.model_copy(update={"allow": frozenset()})


def test_a_key_file_is_the_same_in_any_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    built = ColumnPolicy(**{**FACTS, "key": "file:noise.key"}, mechanism=CUSTEXT, allow={"cluster"})
    assert built.key == f"file:{tmp_path / 'noise.key'}"


def test_policies_are_plain_data_without_secrets():
    built = ColumnPolicy(**FACTS, mechanism=CUSTEXT, allow={"cluster"})
    assert "A_SECRET" not in repr(built)
    again = pickle.loads(pickle.dumps(built))
    assert again == built
    assert json.loads(policy().model_dump_json())["key"] == "file:noise.key"


def test_load_takes_paths_from_the_folder_of_the_file(tmp_path):
    (tmp_path / "privacy.toml").write_text(TOML)
    loaded = Policy.load(tmp_path / "privacy.toml")
    assert loaded.source == str(tmp_path / "raw/reviews.parquet")
    assert loaded.key == f"file:{tmp_path / 'noise.key'}"
    assert loaded.ledger == LedgerSpec(
        url=f"sqlite:///{tmp_path / 'ledger.db'}", id_key=f"file:{tmp_path / 'ledger-id.key'}"
    )
    [column] = loaded.column_policies()
    assert (column.dataset, column.column, column.release) == ("reviews", "review", "2026-11")


def test_object_stores_and_environment_keys_stay_as_they_are(tmp_path):
    text = TOML.replace("raw/reviews.parquet", "s3://bucket/raw.parquet").replace("file:noise.key", "env:MY_SECRET")
    (tmp_path / "privacy.toml").write_text(text)
    loaded = Policy.load(tmp_path / "privacy.toml")
    assert (loaded.source, loaded.key) == ("s3://bucket/raw.parquet", "env:MY_SECRET")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"subject": None}, 'unit = "record"'),
        ({"keep": ["review"]}, "two roles"),
        ({"keep": ["id"]}, "two roles"),
        ({"source": "raw/{partition}.parquet"}, "source and sink"),
        ({"cap": {"measure": "pure", "rho": 1.0}}, "needs epsilon"),
        ({"cap": {"measure": "approx", "epsilon": 1.0}}, "delta and epsilon"),
        ({"copy_gate_false_alarm": 1e-9}, 'measure "approx"'),
        ({"color": "red"}, "color"),
        ({"shard_rows": 0}, "must be above 0"),
        ({"column": []}, "entries .*column.*, or one in a table"),
        (
            {
                "column": [
                    {
                        "name": "review",
                        "mechanism": {**CUSTEXT, "mode": "faithful"},
                        "allow": ["cluster", "oov", "numbers", "punct", "case"],
                    }
                ]
            },
            "publish = false",
        ),
        ({"column": [{"name": "review", "mechanism": CUSTEXT, "allow": ["everything"]}]}, "allow"),
    ],
)
def test_bad_policies(changes, said):
    with pytest.raises(PolicyError, match=said):
        policy(**changes)


def test_missing_and_malformed_files(tmp_path):
    with pytest.raises(PolicyError, match="cannot be read"):
        Policy.load(tmp_path / "nothing.toml")
    (tmp_path / "bad.toml").write_text("dataset = ")
    with pytest.raises(PolicyError, match="not valid TOML"):
        Policy.load(tmp_path / "bad.toml")


def test_the_json_schema_names_every_entry():
    schema = Policy.model_json_schema()
    assert {"dataset", "release", "source", "sink", "column", "ledger", "cap"} <= set(schema["properties"])


def test_caps():
    assert Cap(epsilon=3.0).measure == "pure"
    assert Cap(measure="zcdp", rho=1.0).period == "all"


def mechanism_of(folder, entries):
    """The mechanism of a policy file that states it in these words."""
    text = TOML.replace('{ name = "custext", epsilon = 2.0, k = 20 }', f"{{ {entries} }}")
    if "custext" not in entries:
        text = text.replace('allow = ["cluster"]', "")
    (column,) = Policy.load(written(folder, text)).columns
    return column.mechanism


FILES = {
    'name = "santext", epsilon = 1.0, variant = "plus", p = 1.0, vectors = "public/v.npz", sensitive = "s.txt"': {
        "vectors": "{folder}/public/v.npz", "sensitive": "{folder}/s.txt",
    },
    'name = "diffractor", epsilon = 1.0, vectors = ["english-20k", "public/v.npz", "w.npz"]': {
        "vectors": ("english-20k", "{folder}/public/v.npz", "{folder}/w.npz"),
    },
    'name = "dp_prompt", epsilon = 5.0, model = "google/flan-t5-base", clip = "a/c.json", allow_list = "t.json"': {
        "model": "google/flan-t5-base", "clip": "{folder}/a/c.json", "allow_list": "{folder}/t.json",
    },
}  # fmt: skip


@pytest.mark.parametrize("entries", FILES)
def test_public_inputs_of_a_mechanism_are_taken_from_the_policys_folder(tmp_path, entries):
    if "dp_prompt" in entries:
        pytest.importorskip("dptext_etl_models")
    made = mechanism_of(tmp_path, entries)
    for name, value in FILES[entries].items():
        expected = [one.format(folder=tmp_path) for one in ([value] if isinstance(value, str) else value)]
        found = getattr(made, name)
        assert list(map(str, found if isinstance(value, tuple) else [found])) == expected


@pytest.mark.parametrize("there", [True, False])
def test_names_are_folders_next_to_the_policy_where_there_are_such_folders(tmp_path, there):
    """Models of a hub, corpora, and folders that the tools of an allocation read."""
    anchor = f"{tmp_path}/" if there else ""
    for name in ("google/flan-t5-base", "requests", "public/tags", "counts") if there else ():
        (tmp_path / name).mkdir(parents=True)
    column = {"name": "text", "mechanism": {"name": "surrogate", "corpus": "requests"}}
    synthetic = {"pool": "requests", "mechanism": {"corpus": "requests"}}
    found = anchored({"column": [column], "synthetic": synthetic}, tmp_path)
    assert found["synthetic"]["pool"] == f"{anchor}requests"
    assert found["column"][0]["mechanism"]["corpus"] == f"{anchor}requests"
    assert found["synthetic"]["mechanism"]["corpus"] == f"{anchor}requests"
    tools = 'tagger = "spacy:public/tags", information = "wordnet:counts", encoder = "words"'
    budget = f'allocation = {{ scores = ["ic"], total = 9.0, {tools} }}'
    divided = mechanism_of(tmp_path, f'name = "custext", {budget}').allocation
    assert (divided.tagger, divided.information) == (f"spacy:{anchor}public/tags", f"wordnet:{anchor}counts")
    assert divided.encoder == "words"
    pytest.importorskip("dptext_etl_models")
    made = mechanism_of(tmp_path, 'name = "dp_prompt", epsilon = 5.0, model = "google/flan-t5-base"')
    assert made.model == f"{anchor}google/flan-t5-base"


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ('sorce = "x"', "sorce: there is no such entry", "did you mean 'source'?; sorce is in line 2"),
        ('ledger = { url = "l.db", idkey = "" }', "ledger.idkey: there is no such entry", "did you mean 'id_key'?"),
        ('cap = { measure = "pur" }', "cap.measure: must be 'pure', 'zcdp' or 'approx'", "cap.measure is in line 2"),
        ("keep = 3", "keep: must be a list", "keep is in line 2"),
        ('compression = "zip"', "compression: must be 'zstd-1', 'zstd-3', 'zstd-9', 'snappy' or 'none'", "line 2"),
    ],
)
def test_a_wrong_entry_names_its_line_and_the_names_that_are_close(tmp_path, line, message, hint):
    path = tmp_path / "privacy.toml"
    path.write_text(f'# privacy = "no entry"\n{line}\n')
    with pytest.raises(PolicyError) as caught:
        Policy.load(path)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert "dataset is in line" not in caught.value.hint, "what is missing has no line"
