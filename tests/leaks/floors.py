"""Measure how rare or small a planted bug may be before gates stop noticing it: `python -m tests.leaks.floors`.

Every cell is the number of runs, under different keys, that a gate stopped. It writes `floors.json`, from
which `make -C studies leak-drills` writes the table.
"""

import hashlib
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.checks import canaries
from dptext_etl.engines import stage
from dptext_etl.families.choice import ChoiceMechanism
from dptext_etl.runner import check
from dptext_etl.runner.shard import computing
from tests.policy_files import policy_in

from .drills import Shard, joined, seeded

FOUND = Path(__file__).with_name("floors.json")
MECHANISMS = {
    "custext": ({"name": "custext", "epsilon": 2.0}, ["cluster"], 2_000, 20),
    "surrogate": ({"name": "surrogate", "epsilon": 4.0, "corpus": "everyday-30k"}, [], 2_000, 20),
    "dpmlm": ({"name": "dpmlm", "model": "example-masked", "epsilon": 20.0, "decoding": "parallel"}, [], 200, 8),
}
"""Mechanism, allowed disclosures, rows of a run, and runs. Canary rows decide, of which there are 8 per set."""
ROWS = (0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)
WORDS = (0.3, 0.2, 0.1, 0.05)
FACTORS = (1.5, 2.0, 2.5, 3.0)


def rows_raw(share):
    """A share of the rows is released as it was, the same ones however often they are computed."""
    return lambda shard: [
        raw if seeded(f"{raw} {out}").random() < share else out
        for raw, out in zip(shard.raw, shard.released, strict=True)
    ]


def words_raw(share):
    """A share of the known words stays."""

    def bug(shard):
        found = []
        for out, pair in zip(shard.released, shard.words(), strict=True):
            random, known = seeded(str(out)), shard.known()
            keep = lambda _, raw, word: raw.lower() if raw.lower() in known and random.random() < share else word  # noqa: B023
            found.append(joined([pair], keep)[0])
        return found

    return bug


def bugs(name):
    """Yield a name as the page has it, with the bug and a factor on epsilon."""
    for share in ROWS:
        yield f"{share:.0%} of the rows raw", rows_raw(share), 1.0
    if name != "surrogate":
        for share in WORDS:
            yield f"{share:.0%} of the known words raw", words_raw(share), 1.0
    for factor in FACTORS:
        yield f"ε × {factor:g}", None, factor


def texts(mechanism, rows):
    """Public texts of known words, drawn at random."""
    random = np.random.default_rng(5)
    if isinstance(mechanism, ChoiceMechanism):
        found = mechanism.opened.texts
        return [found[place] for place in random.choice(len(found), rows, replace=False)]
    words = [word for word in mechanism.input_words() if word.isalpha()][:3_000]
    return [" ".join(random.choice(words, 12)) for _ in range(rows)]


def policy(folder, mechanism, allow, run):
    """Return the policy of one run, with its own key and ledger."""
    (folder / "noise.key").unlink(missing_ok=True)
    _kernel.Secret.from_bytes(hashlib.sha256(f"floors {run}".encode()).digest()).write(str(folder / "noise.key"))
    places = {"sink": str(folder / f"out-{run}"), "staging": str(folder / f"inside-{run}")}
    places["ledger"] = {"url": f"sqlite:///{folder / f'ledger-{run}.db'}"}
    column = {"name": "text", "mechanism": mechanism, "allow": allow}
    return policy_in(folder, column, dataset="floors", release="r", **places)


def stopped(folder, name, bug, factor, run):
    """Return the gates that stopped one run with the bug."""
    mechanism, allow, rows, _ = MECHANISMS[name]
    good = policy(folder, mechanism, allow, run)
    other = policy(folder, {**mechanism, "epsilon": mechanism["epsilon"] * factor}, allow, run).column_policies()[0]
    raw = texts(good.column_policies()[0].mechanism, rows)
    pl.DataFrame({"id": range(rows), "text": raw}).write_parquet(folder / "raw.parquet")
    right = computing.release

    def wrong(planted, ids, column):
        out = right(planted, ids, column if factor == 1.0 else other)
        if bug is None:
            return out
        shard = Shard(column.mechanism, pa.array(planted).to_pylist(), pa.array(out.text).to_pylist())
        return out._replace(text=pa.array(bug(shard), pa.large_string()))

    computing.release = wrong
    try:
        return {verdict.name for verdict in check(stage(good)) if not verdict.passed}
    finally:
        computing.release = right


def measure(name):
    """Return the runs that were stopped, by bug and by the number of sets of canary rows."""
    found = {}
    *_, rows, runs = MECHANISMS[name]
    for planted, bug, factor in (("nothing", None, 1.0), *bugs(name)):
        for sets in (1, 10):
            canaries.SET_ROWS = rows // sets
            gates = Counter()
            for run in range(runs):
                with tempfile.TemporaryDirectory() as place:
                    fired = stopped(Path(place), name, bug, factor, run)
                gates.update(["stopped"] if fired else [])
                gates.update(fired)
            found.setdefault(planted, {})[sets] = dict(gates)
            print(name, planted, sets, dict(gates), flush=True)
    return found


def table(found):
    """Write what `measure` found as Markdown."""
    lines = ["| planted | " + " | ".join(f"{name}, of {MECHANISMS[name][3]}" for name in found) + " |"]
    lines.append("| --- |" + " ---: |" * len(found))
    for planted in found["custext"]:
        cells = []
        for of_one in found.values():
            counts = of_one.get(planted, {})
            both = [str(counts[sets].get("stopped", 0)) for sets in ("1", "10") if sets in counts]
            cells.append(" / ".join(both) or "–")
        lines.append(f"| {planted} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    old = json.loads(FOUND.read_text()) if FOUND.is_file() else {}
    for mechanism in sys.argv[1:] or MECHANISMS:
        old[mechanism] = measure(mechanism)
        FOUND.write_text(json.dumps({name: old[name] for name in MECHANISMS if name in old}, indent=1) + "\n")
