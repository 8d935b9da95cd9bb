"""Defects that need a ledger, two tables or two machines: each line names the test that plants it."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def listed(lines):
    """Entries of three lines: a defect and how it comes about; what stops it; the test that shows it."""
    lines = [line.strip() for line in lines.strip().splitlines()]
    return [(*lines[at].split(" | "), *lines[at + 1 : at + 3]) for at in range(0, len(lines), 3)]


CLAIMS = listed("""
parts that end where raw texts fill a shard | a limit on raw bytes
    parts are cut from published rows
    integration/test_boundary.py::test_equal_draws_leave_equal_bytes
who is admitted under a cap follows from lengths of texts | refunds at the ends of shards that raw bytes cut
    such shards end by rows alone
    integration/test_boundary.py::test_what_a_cap_admits_does_not_depend_on_lengths
the parameter of a mechanism printed as its bound | ε per word, read as ε per record
    statements print what the ledger charges
    contract/test_statements.py::test_the_parameter_is_not_the_bound
a bound where the mechanism has none | SanText+ with p < 1
    statements print no finite ε
    contract/test_statements.py::test_a_page_has_no_other_bound
a report beyond its bound printed as "passed" | a report that decides nothing
    the command line says BEYOND CHANCE
    cli/test_running.py::test_a_report_says_where_it_stands_to_its_bound
""")
"""Published or signed statements."""

IDENTITY = listed("""
a known record under another person | re-attributed rows
    the ledger compares units; `accept-units` accepts a change by name
    integration/test_run_units.py::test_records_of_another_person_are_refused
another column of ids or people | a renamed column
    columns are pinned per scope
    integration/test_run_units.py::test_another_column_of_ids_is_refused
another spelling of a person | letter case, blanks, Unicode forms
    `normalize` in the policy, pinned
    integration/test_run_units.py::test_spellings_of_one_person_share_a_budget
a new period while charges exist | a cap of 2026 after charges without a period
    a new balance is opened by name
    ledger/test_periods.py::test_a_new_period_beside_charges_is_opened_by_name
any writer on a ledger restored from an old copy | a failover, a backup
    anchors kept apart from the ledger; the dataset freezes
    ledger/test_anchor_files.py::test_no_writer_overwrites_a_head_that_the_ledger_misses
a revocation lost by a restore | a gate fired after the backup
    a revocation stores the anchor
    ledger/test_anchor_files.py::test_nothing_is_written_to_a_ledger_that_misses_a_head
a restored ledger under another spelling of its place | `localhost` for 127.0.0.1, a link
    anchors are filed by the ledger's id
    ledger/test_anchor_files.py::test_anchors_are_found_however_the_place_is_spelled
a door that drops a setting of the policy | Dagster resources, Spark workers, suites
    every field is passed through every door
    policy/test_policy_fields.py::test_no_field_has_its_default
a negative loss, `True` or NaN as an amount | `thaw` with a loss of -1,000
    amounts are checked numbers
    ledger/test_anchor_files.py::test_an_amount_that_may_be_lost_is_a_number_of_zero_or_more
fewer draws than were charged | a mechanism that cuts texts and counts after that
    a commit takes exactly the charged number of draws
    leaks/test_leak_drills.py::test_fewer_draws_than_were_charged_are_never_committed
""")
"""Who is charged, and the memory of a ledger."""

ERASURE = listed("""
files of an older release put back after `forget` | a restored bucket
    manifests of all releases are retired
    integration/test_run_forgotten.py::test_an_older_release_that_is_put_back_is_refused
a forgotten record that returns | the source still exports it
    it is excluded, and no list names it; `readmit` lifts that
    integration/test_run_forgotten.py::test_a_forgotten_record_that_comes_back_is_excluded
`forget` during a run | a nightly run under way
    commits and publications compare again
    integration/test_run_forgotten.py::test_a_run_under_way_does_not_publish_whom_another_call_forgets
`forget` of someone who is not there | a typing error in the id
    exit code 8, nothing is changed; with `--everywhere` an error
    integration/test_run_forgotten.py::test_people_who_are_not_there_are_said_and_exit_with_8
a person over the cap who is forgotten, then released under the next name | only charged records were known
    the ledger holds the keyed hash of the person; so do lists in staging
    integration/test_run_forgotten.py::test_a_person_who_was_never_charged_is_forgotten
a forgotten row in another sink, with new versions on top | an incremental run that adds to its base
    the base is compared before and after the run; `check` counts such rows
    integration/test_run_forgotten.py::test_who_is_forgotten_in_another_sink_is_not_published_again
`forget` in one sink that makes another sink fail its check | manifests retired by partition only
    RETIRE names the sink
    ledger/test_erasure.py::test_a_version_is_retired_in_its_own_sink_only
staging of a release with another id column | two releases in one staging folder
    each release is read with its own columns
    integration/test_run_forgotten.py::test_staging_of_a_release_with_another_id_column
""")
"""Forgotten people."""

TABLES = listed("""
a draw that failed, or raw text behind one, in a shuffled release | a fallback, a template
    gate `texts_in_corpus`
    leaks/test_whole_tables.py::test_a_bug_of_the_draws_stops_a_shuffled_release
one seed for every row, or the nearest text instead of a draw | a seed in the code, `argmax`
    gates `repeats_within_chance`, `canary_texts_replaced`
    leaks/test_whole_tables.py::test_a_bug_of_the_draws_stops_a_shuffled_release
ids, a raw text, or a wrong count in the published multiset | a table that was written again
    gates `raw_column_absent`, `texts_in_corpus`, `repeats_within_chance`
    leaks/test_whole_tables.py::test_a_changed_multiset_is_found_in_the_published_table
order, shards, or ids of records in published bytes | rows that are written as they come
    parts are cut from sorted texts
    integration/test_run_labels.py::test_ids_order_shards_and_other_labels_do_not_show
a second version that differs in one known record | a changed source, `forget` between pin and draw
    a release is pinned to one table
    integration/test_run_labels.py::test_a_record_that_is_forgotten_between_pin_and_draw_is_not_subtracted
digests in the ledger that say whose text is whose | a plain hash of a public text
    digests are keyed
    integration/test_run_labels.py::test_the_ledger_is_no_table_of_whose_text_is_whose
an unlisted label in a shuffled release | a column of labels that is copied as it is
    gate `labels_in_list`
    integration/test_run_labels.py::test_a_label_that_the_policy_does_not_list_fires_a_gate
a raw text, an unlisted label, or a raw column in a synthetic table | a fallback, a join
    gates `texts_in_corpus`, `labels_in_list`, `raw_column_absent`, `row_count`
    integration/test_run_synthetic.py::test_a_raw_text_in_the_staged_table_fires_a_gate
raw texts or labels in files and logs of a run that stops half-way | partial sums and frames that are written
    nothing but the noisy statistic and its table is staged
    integration/test_run_synthetic.py::test_no_raw_text_and_no_raw_label_reaches_a_file
the same noise for another table | a seed that follows from the release name
    the noise key follows from table and sums
    exact/test_aggregate_noise.py::test_noise_is_drawn_under_a_key_of_the_release_all_rows_and_their_sums
a corpus that was built from the private column | texts of the domain are at hand
    plans and runs compare files; `dptext corpus` reads policies
    integration/test_run_synthetic_entry_points.py::test_a_corpus_that_is_the_private_column_is_refused
""")
"""Releases of a whole table: shuffled, and synthetic."""


def rows(lines):
    """Write one table, after a look whether its tests are there."""
    found = ["| planted | how it comes about | stopped by | shown by |", "| --- | --- | --- | --- |"]
    for planted, how, stopper, test in lines:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (TESTS / file).read_text(encoding="utf-8"), test
        found.append(f"| {planted} | {how} | {stopper} | `tests/{file}` |")
    return "\n".join(found)
