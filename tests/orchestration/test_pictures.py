"""Pictures and tables in metadata: drawn from spends, small, and of the right kind."""

import base64
import io

import pytest

dg = pytest.importorskip("dagster", reason="dagster is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from dptext_etl import escaping  # noqa: E402
from dptext_etl.guarantee import MICRO  # noqa: E402
from dptext_etl.orchestration import facts  # noqa: E402
from tests.policy.test_secrets import policy  # noqa: E402
from tests.test_escaping import HOSTILE, READER, Reader  # noqa: E402

USED = {"min": 10 * MICRO, "p50": 40 * MICRO, "max": 100 * MICRO}


def remaining(**changes):
    facts = {"unit": "subject", "limits": {"eps_pure": 100 * MICRO}, "used": {"eps_pure": USED}}
    return {**facts, **changes}


def image(markdown):
    from matplotlib.image import imread

    head, _, data = markdown.value.partition("(data:image/png;base64,")
    assert head.startswith("![")
    return imread(io.BytesIO(base64.b64decode(data.rstrip(")"))), format="png")


def test_the_remaining_budget_is_drawn():
    drawn = facts.pictures_of_remaining(remaining())
    assert list(drawn) == ["remaining budget (eps_pure)"]
    picture = drawn["remaining budget (eps_pure)"]
    assert isinstance(picture, dg.MarkdownMetadataValue)
    assert image(picture).shape[1] > 400
    assert len(picture.value) < 40_000


def test_every_component_of_a_cap_has_its_picture():
    limits = {"eps_approx": MICRO, "delta": 1}
    used = {"eps_approx": USED, "delta": {"min": 0, "max": "inf"}}
    assert len(facts.pictures_of_remaining(remaining(limits=limits, used=used))) == 2


def test_without_a_cap_or_a_charge_nothing_is_drawn():
    assert facts.pictures_of_remaining(remaining(limits={}, used={"eps_pure": USED})) == {}
    assert facts.pictures_of_remaining(remaining(used={"eps_pure": {}})) == {}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_is_read_as_markup(name):
    mechanism = {"name": "custext", "epsilon": 1.0}
    made = policy(column=[{"name": name, "mechanism": mechanism, "allow": ["cluster"]}])
    page = Reader(READER.render(facts.claims(made)["guarantee"].value))
    assert [tag for tag, _ in page.tags].count("td") == 6
    assert not {"a", "img", "script", "code", "em", "strong"} & {tag for tag, _ in page.tags}
    picture = facts._histogram({1.0: 3}, name)
    shown = Reader(READER.render(picture.value))
    assert [tag for tag, _ in shown.tags] == ["p", "img"]
    assert escaping.markdown(name) in picture.value
