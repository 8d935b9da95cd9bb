"""Wrong entries of a policy: the path as it is written, the problem in our words, and never a name of pydantic's."""

import re

import pytest

from dptext_etl import Policy, catalog
from dptext_etl.errors import PolicyError
from dptext_etl.parameters import models_in

COLUMN = {"name": "review", "mechanism": {"name": "custext", "epsilon": 2.0}, "allow": ["cluster"]}
POLICY = {
    "dataset": "films",
    "release": "r7",
    "source": "raw.parquet",
    "sink": "out",
    "id": "number",
    "unit": "record",
    "key": "env:FILMS_SECRET",
    "ledger": {"url": "ledger.db"},
    "column": [COLUMN],
}
WRONG = [
    "",
    [""],
    ["x", ""],
    [1, None],
    {"": 1},
    {"x": ""},
    {"x": {}},
    5,
    None,
    [{}],
    [[""]],
    "x",
    -1,
    float("nan"),
    True,
]
ENTRY = re.compile(r"(?:policy: )?(?:[a-z_0-9]+|''|x)(?:\.(?:[a-z_0-9]+|''|x))*: ")
OTHERS = re.compile(r"constrained|function-|\[key|<\w+\.|lax-or|nput should|[Vv]alidat|\w+\[\w|Error|1 items")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"keep": [""]}, "policy: keep.0: must not be empty"),
        ({"keep": [5]}, "policy: keep.0: must be a string or a table"),
        ({"keep": [{"column": ""}]}, "policy: keep.0.column: must not be empty"),
        ({"keep": [{"column": "n", "bins": ["x"]}]}, "policy: keep.0.bins.0: must be a whole number or a number"),
        ({"keep": [{"column": "n", "top": []}]}, "policy: keep.0.top: must be a list of at least 1"),
        ({"column": [COLUMN | {"accept_unbounded": ["LDP"]}]}, "policy: column.0.accept_unbounded.0: must be 'UMLDP'"),
        ({"str": "x"}, "policy: str: there is no such entry"),
    ],
)
def test_a_wrong_entry_is_described_once(entries, message):
    with pytest.raises(PolicyError) as refused:
        Policy.parse(POLICY | entries)
    assert refused.value.message == message


def problems(read, given):
    try:
        read(given)
    except PolicyError as error:
        return error.message.split("; ")
    return []


def wrong(model, seen, inside=lambda entries: entries):
    """Yield wrong entries of a model, and of the models inside it, also as items of a list; each type once."""
    for name, field in model.model_fields.items():
        if (kind := f"{field.annotation} {field.metadata}") in seen:
            continue
        seen.add(kind)
        entry = field.alias or name
        yield from (inside({entry: value}) for value in WRONG)
        for part in set(models_in(field.annotation)):
            for form in (list, lambda items: items[0]):
                yield from wrong(part, set(), lambda given, entry=entry, form=form: inside({entry: form([given])}))


def test_no_entry_has_a_message_of_pydantic():
    seen = set()
    lines = [line for entries in wrong(Policy, seen) for line in problems(Policy.parse, POLICY | entries)]
    for name in catalog.available():
        mechanisms = ({"epsilon": 1.0, **entries, "name": name} for entries in wrong(catalog.load(name), seen))
        lines += [line for mechanism in mechanisms for line in problems(catalog.build, mechanism)]
    assert len(lines) > 2_000
    assert not {line for line in lines if OTHERS.search(line)}
