"""The page of supported versions states bounds that the tested versions satisfy."""

from packaging.specifiers import SpecifierSet

from tests.study import study

versions = study("generators.versions")


def test_the_tested_version_of_each_library_is_allowed(versions):
    allowed, tested = versions.bounds(), versions.pins()
    assert versions.LIBRARIES.keys() <= allowed.keys() & tested.keys()
    for name in versions.LIBRARIES:
        bound, _ = allowed[name]
        assert SpecifierSet(bound).contains(tested[name].split(";")[0].strip()), name
