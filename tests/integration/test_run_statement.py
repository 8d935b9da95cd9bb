"""The page to sign, and the screens: contents, promises, and costs of a release, from manifest and ledger."""

import json
import os
import pwd
import re
import shlex

import polars as pl
import pytest

from dptext_etl import markup
from dptext_etl.runner import statement
from dptext_etl.runner.statement import markdown, meaning_of, page
from tests.command_line import dptext
from tests.quick import quick
from tests.test_escaping import HOSTILE, READER, Reader


def test_both_forms_say_what_ledger_and_manifest_hold(policy_of_job, tmp_path, sentinel):
    done = dptext("statement", policy_of_job, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    facts = json.loads(dptext("statement", policy_of_job, "--json").stdout)
    review = next(column for column in facts["columns"] if column["name"] == "review")
    ledger = json.loads(dptext("ledger", "show", "--ledger", policy_of_job.parent / "ledger.db", "--json").stdout)
    shown = next(release for release in ledger["releases"] if release["column"] == "review")
    charged = review["charged"]["largest_epsilon"]
    assert charged == shown["max_eps_pure"] < review["worst_case"]["epsilon"] == 20_000
    assert set(review["disclosures"]) == {"cluster", "length", "nullness"}
    assert {"id", "stars"} <= set(facts["in_clear"])
    written, page = ((tmp_path / "out" / f"statement.{form}").read_text() for form in ("md", "html"))
    ((first,),) = (cap["set"] for cap in facts["caps"])
    assert (first["change"], first["user"]) == ("first", pwd.getpwuid(os.getuid()).pw_name)
    assert f"{first['user']}, {first['at']}, first" in written.replace("\\", "")
    for said in (
        f"ε {charged:g}",
        "ε 20,000 for the longest text",
        "This release charged the most charged person",
        "For a text of one word, ε 2.",
        "the output set of every word",
        facts["manifest_sha256"],
        "rows_ledgered",
        "names each person once",
    ):
        assert said in written
        assert said in page
    assert not re.findall(r"<(?:script|link|img)|https?:", page)
    assert sentinel not in written + page + json.dumps(facts)


@pytest.mark.parametrize("changed", quick(["mechanism", "release"]))
def test_every_door_refuses_what_another_release_or_configuration_published(job, tmp_path, changed):
    job.run()
    mechanism = {"name": "custext", "epsilon": 0.5, "k": 5, "vectors": job.vectors}
    columns = [{"name": name, "mechanism": mechanism, "allow": ["cluster"]} for name in ("review", "note")]
    changes = {"release": {"release": "never-run"}, "mechanism": {"column": columns}}[changed]
    policy = job.write_policy(**changes)
    for words in (("--out", tmp_path / "out"), ("--released", job.folder / "published")):
        done = dptext("statement", policy, *words)
        said = " ".join(done.output.split())
        assert (done.exit_code, (tmp_path / "out").exists()) == (5, False), done.output
        if changed == "release":
            assert "the sink holds the release reviews / 2026-11, and the policy is of reviews / never-run" in said
        else:
            held, own = (job.policy(**given).column_policies()[0].mechanism.cfg()[:12] for given in ({}, changes))
            assert f"'review' under the configuration {held}…, and the policy has {own}…" in said
    done = dptext("check", policy)
    expected = {"release": "other release: 1", "mechanism": "other configuration: 4"}[changed]
    assert (done.exit_code, expected in done.output) == (4, True), done.output


def test_readers_outside_see_no_amount_that_depends_on_texts(policy_of_job, tmp_path):
    facts = json.loads(dptext("statement", policy_of_job, "--public", "--json").stdout)
    assert "charged" not in facts["columns"][0]
    assert [cap.keys() for cap in facts["caps"]] == [{"scope", "unit", "limits"}]
    assert "person" not in facts
    assert facts["sink"] == "published"
    dptext("statement", policy_of_job, "--public", "--out", tmp_path / "out")
    written = (tmp_path / "out" / "statement.md").read_text()
    assert "Inside your boundary" not in written
    assert "most charged" not in written
    assert "cap of a subject: dataset:reviews, period 2026 | ε 1,000: odds move by 10^435 at most" in written
    assert str(policy_of_job.parent) not in written


def test_how_often_texts_are_reidentified_is_stated_of_the_version_that_was_measured(policy_of_job, tmp_path):
    facts = json.loads(dptext("statement", policy_of_job, "--json").stdout)
    assert (facts["reidentified"], facts["published_at"][:3]) == ([], "202")
    score, attack = {"value": 0.125, "blind": 1 / 240, "what": "hits"}, {"name": "nearest_neighbour"}
    column = {"column": "review", "rows": 2000, "attacks": [{"name": "membership", "scores": []}]}
    column["attacks"].append({**attack, "scores": [score, {"value": 9.0, "blind": 120.0}]})
    for manifest, measured in ((facts["manifest_sha256"], True), ("0" * 64, False)):
        found = {"columns": [{**column, "cost": {"manifest sha256": manifest}}]}
        (tmp_path / "evidence.json").write_text(json.dumps(found))
        for option in ((), ("--public",)):
            dptext("statement", policy_of_job, "--evidence", tmp_path, "--out", tmp_path, *option)
            page = (tmp_path / "statement.md").read_text()
            said = "finds the one behind a release at the first try in 12.5% of 2,000 rows of review (0.4% by chance)"
            assert (said in page) == (measured and not option)
            assert (f"Published at {facts['published_at'][:10]}" in page.replace("\\", "")) == (not option)
    unknown = json.dumps(found).replace("0" * 64, facts["manifest_sha256"]).replace("0.125", "null")
    for broken in ("", "[]", '{"columns": [{}]}', unknown):
        (tmp_path / "evidence.json").write_text(broken)
        assert dptext("statement", policy_of_job, "--evidence", tmp_path, "--out", tmp_path).exit_code == 0


def test_a_published_table_alone_says_what_is_missing(policy_of_job):
    facts = json.loads(dptext("statement", policy_of_job.parent / "published", "--json").stdout)
    assert facts["columns"][0]["worst_case"]["epsilon"] == 20_000
    assert "ledger" in facts["lacks"][0]


def test_where_nothing_is_published(tmp_path):
    done = dptext("statement", tmp_path / "nothing")
    assert done.exit_code == 5
    assert "nothing is published there" in done.output


@pytest.mark.parametrize(
    ("epsilon", "said"),
    [
        (4.0, "35.6%"),
        (20.0, "may be near certain"),
        (0.0, "factor of 1 "),
        (30.0, "says nothing in practice"),
        ("inf", "No bound"),
    ],
)
def test_an_epsilon_in_words(epsilon, said):
    """A prior of 1%: odds of 1 to 99 times e^4 are 0.5515, a chance of 35.55%, rounded up."""
    assert said in meaning_of(epsilon)


def renamed(facts, name):
    """The same facts under another name of everything that a policy, a source, or a sink names."""
    texts = {facts["dataset"], facts["release"], facts["sink"], *facts["in_clear"]}
    texts |= {column["name"] for column in facts["columns"]} | {cap["scope"] for cap in facts["caps"]}

    def changed(value):
        if isinstance(value, dict):
            return {key: changed(item) for key, item in value.items()}
        if isinstance(value, list):
            return [changed(item) for item in value]
        return name if isinstance(value, str) and value in texts else value

    return changed(facts)


def test_no_name_is_read_as_markup(policy_of_job):
    facts = json.loads(dptext("statement", policy_of_job, "--json").stdout)
    plain = renamed(facts, "plain")
    expected = Reader(READER.render(markdown(plain))).tags
    for name in HOSTILE:
        hostile = renamed(facts, name)
        assert Reader(page(hostile)).tags == Reader(page(plain)).tags, name
        assert Reader(READER.render(markdown(hostile))).tags == expected, name
        (command,) = [line for line in markdown(hostile).splitlines() if line.startswith("dptext check")]
        place = markup.one_line(name).replace("`", "'")
        assert shlex.split(command, comments=True) == ["dptext", "check", "POLICY", "--released", place]


@pytest.mark.parametrize(
    ("cap", "said"),
    quick(
        [
            ({"measure": "zcdp", "rho": 900.0, "period": "2026"}, "period 2026 | rho 900 |"),
            (None, "There is no cap per person"),
            (
                {"measure": "approx", "epsilon": 500.0, "delta": 1e-3, "period": "2026"},
                "10^218 times as likely, plus δ |",
            ),
        ],
        first=2,
    ),
)
def test_a_cap_is_stated_by_its_measure(job, cap, said):
    """Odds have no bound where a cap counts a delta, or rho; a cap that counts rho is a cap."""
    job.run(cap=cap)
    for public in (False, True):
        text = markdown(statement.facts(policy=job.policy(cap=cap), public=public))
        assert said in text
        assert ("There is no cap" in text) == (cap is None)
        assert "odds move by" not in text


@pytest.mark.parametrize(
    ("ids", "said"),
    quick(
        [
            ("keyed", "Record ids are keyed hashes: without the key"),
            ("keep", "a person who knows the ids can find every row. No other column"),
            ("drop", "No id is published. No other column"),
        ]
    ),
)
def test_ids_decide_where_no_column_is_kept(job, ids, said):
    job.run(ids=ids, keep=[])
    assert said in markdown(statement.facts(policy=job.policy(ids=ids, keep=[])))


def test_the_page_leads_with_the_loss_of_the_most_charged_person(job, tmp_path):
    """Losses of one person add up over columns, and over scopes whatever their caps count; the oracle is the tables."""
    job.run(dataset="Reviews")
    cap = {"measure": "zcdp", "rho": 900.0, "period": "2026"}
    job.run(dataset="Calls", sink=str(job.folder / "calls"), cap=cap)
    policy = job.policy(dataset="Reviews")
    with job.ledger() as ledger:
        ledger.write_tables(tmp_path / "tables")
    records = pl.read_parquet(tmp_path / "tables" / "record.parquet").filter(~pl.col("canary"))
    by_person = pl.col("eps_pure").sum().over("unit_hash")
    expected = {
        "release": records.filter(dataset="Reviews").select(by_person.max()).item(),
        "all": records.select(by_person.max()).item(),
    }
    facts = statement.facts(policy=policy)
    assert {name: facts["person"][name]["epsilon"] for name in expected} == expected
    assert expected["all"] == 2 * expected["release"] > facts["columns"][0]["charged"]["largest_epsilon"]
    first, second, *_ = markdown(facts).split("\n## ")
    assert "Only for readers inside your boundary" in first
    assert second.startswith("Loss of the most charged person\n")
    assert f"This release charged the most charged person ε {expected['release']:g}" in second
    assert f"All releases in this ledger together charged the most charged person ε {expected['all']:g}" in second


LINES = 45  # a screen states one fact per line


def test_screens_fit_on_one_page(job):
    policy = job.write_policy()
    planned, ran = dptext("plan", policy).output, dptext("run", policy).output
    again = dptext("run", policy, "--full").output
    for shown in (planned, ran):
        assert len(shown.splitlines()) <= LINES
        assert "quarantin" not in shown
    assert "9 passed; --full lists them" in ran
    assert "copies_within_chance  within chance  2 text columns" in ran
    assert "rows_ledgered" not in ran
    assert re.search(r"words_in_output_set +passed +all \d,\d{3} words are in the output set", again)
    assert "ngrams_within_chance  within chance  column 'note'" in again


def test_a_gate_without_anything_to_judge_counts_as_not_applicable(make_job):
    surrogate = {"name": "surrogate", "epsilon": 2.0, "corpus": "example"}
    job = make_job(column=[{"name": "review", "mechanism": surrogate}])
    summary = job.run()
    idle = {gate["name"] for gate in summary.gates if not gate["applicable"]}
    assert idle == {"canary_words_replaced", "duplicates_within_chance", "words_in_output_set"}
    assert all(gate["passed"] for gate in summary.gates)
    counts = f"{len(summary.gates) - 3} passed, 3 not applicable"
    assert f"gates: {counts}" in repr(summary)
    assert summary._repr_html_().count(">not applicable<") == 3
