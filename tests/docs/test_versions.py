"""The page of supported versions states bounds that the tested versions satisfy."""

import json

from packaging.specifiers import SpecifierSet

from tests.study import study

versions = study("generators.versions")


def test_the_page_lists_the_lanes_that_passed(versions):
    runs = json.loads(versions.LANES.read_text(encoding="utf-8"))
    assert runs
    shown = versions.lanes()
    for name, run in runs.items():
        assert f"`{name}`" in shown
        assert run["passed"] > 0, name


def test_the_tested_version_of_each_library_is_allowed(versions):
    allowed, tested = versions.bounds(), versions.pins()
    assert versions.LIBRARIES.keys() <= allowed.keys() & tested.keys()
    for name in versions.LIBRARIES:
        bound, _ = allowed[name]
        assert SpecifierSet(bound).contains(tested[name].split(";")[0].strip()), name
