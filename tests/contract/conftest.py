"""Every mechanism that is installed: its example, a policy for it, texts that try hard.

Another package runs the suite over its own: `pytest tests/contract --mechanisms NAME`.
"""

import pyarrow as pa
import pytest

from dptext_etl import ColumnPolicy, load
from dptext_etl.column import release
from dptext_etl.errors import PolicyError
from tests import chosen

from ..review_jobs import (  # noqa: F401  (fixtures)
    job,
    make_job,
    make_shuffled,
    make_synthetic,
    reviews,
    save,
    sentinel,
    store,
)

TEXTS = [
    "The doctor said it's a rare disease, call 555-0199.",
    "",
    "   ",
    None,
    "good",
    "GOOD Good gOOd",
    "zxqvyuu@example.org https://a.b/c?d=1 #tag @you",
    "naïve café — œuvre ß ǅ İ",
    "😀👩\u200d👩\u200d👧\u200d👦 🇩🇪 ok",
    "我们 喜欢 电影 and films",
    "مرحبا بالعالم שלום",
    "<mask> </s> [CLS] \x00 \x1b[31m",
    "e\u0301cole co\u0301mbining don\u2019t don't well-known",
    "1 22 3.14 1,000 ½ 10th 2nd",
    "good",
]
WORDS = {False: 300, True: 12}
"""Words of the longest text, by whether a model scores them: one that scores whole texts needs seconds for 300."""
DIVIDED = " divided"
"""A mechanism under this name divides one budget of a record among its draws, by the words of the text itself."""


def dividing():
    """Name one mechanism for each way in which budgets are divided; others share all of its code."""
    kinds = {name: load(name) for name in chosen.names() if load(name).cannot_divide is None}
    ways = {(kind.release, getattr(kind, "division", None)): name for name, kind in kinds.items()}
    return [name + DIVIDED for name in ways.values()]


def pytest_generate_tests(metafunc):
    """Run a test of a `mechanism` for each of the module's `MECHANISMS`, or for all: options are read by now."""
    of_its_own = any("mechanism" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "mechanism" in metafunc.fixturenames and not of_its_own:
        names = getattr(metafunc.module, "MECHANISMS", None) or [*chosen.names(), *dividing()]
        later = metafunc.definition.name in getattr(metafunc.module, "DIVIDED_MODELS_LATER", ())
        marks = {name: pytest.mark.thorough for name in dividing() if later and of_a_model(name)}
        rows = [pytest.param(name, marks=marks.get(name, ())) for name in names]
        metafunc.parametrize("mechanism", rows, indirect=True)


def of_a_model(name):
    return load(name.removesuffix(DIVIDED)).accelerated


@pytest.fixture
def mechanism(request):
    return example(request.param)


def example(name):
    """Make the small example of a mechanism, or the same with a budget to divide."""
    kind = load(name.removesuffix(DIVIDED))
    if kind.accelerated:
        pytest.importorskip("transformers", reason="torch and transformers are not installed (extra: models)")
    made = kind.example()
    if name.endswith(DIVIDED):
        budget = {"scores": ("ic",), "total": 40.0, "eps_hi": 25.0}
        try:
            return made.model_copy(update={"allocation": budget})
        except PolicyError:  # no private text divides noise: a template does
            several = {"sentences": 2} if "sentences" in kind.model_fields else {}
            return made.model_copy(update={"allocation": {**budget, "scores": (), "template": (3.0, 1.0)}, **several})
    return made


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    from dptext_etl import _kernel

    path = tmp_path_factory.mktemp("key") / "noise.key"
    _kernel.Secret().write(str(path))
    return f"file:{path}"


@pytest.fixture
def policy(mechanism, key):
    return ColumnPolicy(
        dataset="demo", column="text", release="r1", mechanism=mechanism, key=key, allow=mechanism.guarantee.disclosures
    )


@pytest.fixture
def texts(mechanism):
    return pa.array([*TEXTS, "word " * WORDS[mechanism.accelerated]], pa.large_string())


@pytest.fixture
def ids(texts):
    return pa.array([f"r{i}" for i in range(len(texts))])


@pytest.fixture(scope="module")
def releases():
    return {}


@pytest.fixture
def released(request, policy, texts, ids, releases):
    """The release of the texts by a mechanism, computed once for a file."""
    name = request.node.callspec.params["mechanism"]
    if name not in releases:
        releases[name] = release(texts, ids, policy)
    return releases[name]
