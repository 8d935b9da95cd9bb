"""Every entry of a policy through a suite of Great Expectations, which judges the table of an earlier run."""

import pytest

from tests.later import later
from tests.toy_mechanisms import again  # noqa: F401  (a fixture)

from . import doors
from .test_doors import again_alike, agree, cells, known, state, template  # noqa: F401  (fixtures)

later("great_expectations")


@pytest.mark.filterwarnings("ignore:ids = 'keyed'")
@pytest.mark.usefixtures("again_alike", "state")
@pytest.mark.parametrize(("name", "entry"), cells(("suite",)))
def test_each_entry_in_a_suite(template, small_vectors, known, name, entry):  # noqa: F811
    agree(doors.by_suite, name, entry, template, small_vectors, known)
