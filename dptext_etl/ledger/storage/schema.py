"""Define the tables of a ledger.

`event` and `segment` are the ledger. Every other table follows from them, and `verify` derives it again.
"""

from __future__ import annotations

TABLES = 2
"""The version of the tables; a ledger with it has one writer at a time."""
VERSION = 3
"""The newest version: the same tables, and a journal that may have several lanes (`journal`)."""
APPLICATION = 0x64707478
"""`pragma application_id` of a ledger: "dptx"."""

SCHEMA = """
-- What the ledger knows of itself: its id, the check value of its id key, the head of its chain.
create table meta(name text primary key, value text not null) strict;

-- The journal: hash = SHA-256(tag || hash of the event before || body).
create table event(seq integer primary key, kind text not null, body text not null, hash blob not null) strict;

-- Sealed segments: one blob per column of a batch; how to read it stands in the event's body.
create table segment(seq integer, name text, data blob not null, primary key(seq, name)) strict;

-- Names of releases and what they pin.
create table release(
    id integer primary key, dataset text not null, col text not null, release text not null, cfg text not null,
    id_type text not null, publishable integer not null, facts text not null, burnt integer,
    unique(dataset, col, release)
) strict;

-- Running counts per release; max_pure is null once a spend was infinite.
create table tally(
    release integer, nonce integer, records integer not null default 0, canaries integer not null default 0,
    committed integer not null default 0, expired integer not null default 0, aborted integer not null default 0,
    diverged integer not null default 0, max_pure integer default 0, primary key(release, nonce)
) strict;

-- Where spends add up; measure and limits are null until a cap is set.
create table scope(
    id integer primary key, name text not null, period text not null, unit text not null, measure text, limits text,
    unique(name, period)
) strict;
create table member(scope integer, dataset text, primary key(scope, dataset)) strict;

-- Reserved batches: one state byte per record; `open` counts those neither committed, expired nor aborted.
create table batch(
    seq integer primary key, release integer not null, nonce integer not null, scope integer not null,
    job text not null, rows integer not null, open integer not null, attached integer not null default 0,
    state blob not null
) strict;
create index batch_of_job on batch(job);
create index batch_of_scope on batch(scope);
create index batch_of_release on batch(release, nonce);

-- Which segments hold the digests of a batch.
create table commit_part(batch integer, seq integer, primary key(batch, seq)) strict, without rowid;

-- Sorted runs: balances and the record index. A part holds the ids that share their first `bits` bits.
create table run(id integer primary key, space text not null, bits integer not null, size integer not null) strict;
create index run_of_space on run(space);
create table run_part(
    run integer, part integer, piece integer, data blob not null, primary key(run, part, piece)
) strict;

-- Datasets that nothing is charged or published in, and the event that froze each.
create table frozen(dataset text primary key, seq integer not null) strict;

-- Release names that never come back, also such as this ledger never saw itself.
create table burnt(dataset text, release text, seq integer not null, primary key(dataset, release)) strict;

create table publication(
    release integer, nonce integer, version text, manifest text not null, rows integer not null,
    primary key(release, nonce, version)
) strict
"""

MIGRATIONS = {
    2: """create table frozen(dataset text primary key, seq integer not null) strict;
create table burnt(dataset text, release text, seq integer not null, primary key(dataset, release)) strict;
insert into burnt select distinct dataset, release, burnt from release where burnt is not null""",
    3: "",
}
"""The statements that bring a ledger to a version from the version before, in order."""


def steps(version: int, to: int) -> list[str]:
    """Return the statements that bring a ledger from one version to another."""
    wanted = range(version + 1, to + 1)
    return [statement for number in wanted for statement in MIGRATIONS[number].split(";\n") if statement]
