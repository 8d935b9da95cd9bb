"""Parts of other packages are found, or refused without quoting anything."""

import pytest
from typer.testing import CliRunner

from dptext_etl import catalog, engines, extensions
from dptext_etl.cli.app import app
from dptext_etl.errors import PolicyError

SECRET = "quoted by a library"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a package of one module, as pip leaves it."""

    def write(name, source, entries, package="other"):
        (tmp_path / f"{package}-1.0.dist-info").mkdir()
        (tmp_path / f"{package}-1.0.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n"
        )
        (tmp_path / f"{package}-1.0.dist-info" / "entry_points.txt").write_text(entries)
        (tmp_path / f"{name}.py").write_text(source)
        extensions.installed.cache_clear()

    monkeypatch.syspath_prepend(tmp_path)
    yield write
    extensions.installed.cache_clear()


@pytest.mark.parametrize(
    ("name", "source", "entry", "said"),
    [
        ("custext", "", "custext", r"two packages bring 'custext' .*: dptext-etl and other"),
        ("shout_three", "", "shout", "the entry point shout of other must name a module called shout"),
        ("shout_four", "", "shout_four", "must hold a Mechanism; it holds 0"),
        ("shout_five", f"raise ValueError({SECRET!r})", "shout_five", "importing shout_five of other failed"),
    ],
)
def test_a_part_that_is_none_is_refused_and_not_quoted(install, name, source, entry, said):
    install(name, source, f"[dptext_etl.mechanisms]\n{entry} = {name}\n")
    with pytest.raises(PolicyError, match=said) as caught:
        _ = catalog.available(), catalog.load(entry)
    assert SECRET not in str(caught.value)


def test_two_packages_cannot_bring_one_name(install):
    install("shout_one", "", "[dptext_etl.mechanisms]\nshout_one = shout_one\n")
    install("shout_two", "", "[dptext_etl.mechanisms]\nshout_one = shout_two\n", package="third")
    with pytest.raises(PolicyError, match=r"two packages bring 'shout_one'.*: (other and third|third and other)"):
        catalog.load("shout_one")


def test_a_broken_command_leaves_the_help_of_all_others(install):
    install("shout_six", f"raise ValueError({SECRET!r})", "[dptext_etl.commands]\nshout_six = shout_six\n")
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "statement" in shown.output
    assert "Unavailable: importing shout_six of other failed" in shown.output
    refused = CliRunner().invoke(app, ["shout_six", "file", "--option", "x"])
    assert (refused.exit_code, SECRET in refused.output) == (5, False)
    assert "importing shout_six of other failed" in refused.output


def test_a_command_of_this_package_stays(install):
    install("run", "EXAMPLE, KEYS = '', ()\ndef run(): print('third party')\n", "[dptext_etl.commands]\nrun = run\n")
    shown = CliRunner().invoke(app, ["run", "--help"])
    assert "third party" not in shown.output
    assert "Release the policy's columns" in shown.output


def test_names_of_our_other_packages_say_where_they_come_from(monkeypatch):
    monkeypatch.setattr(extensions, "entry_points", lambda group: ())
    extensions.installed.cache_clear()
    try:
        for name, extra in (("dpmlm", "models"), ("rewrite_again", "models")):
            group = "mechanisms" if name == "dpmlm" else "postprocesses"
            with pytest.raises(
                PolicyError, match=rf"comes with dptext-etl-{extra}, which is not installed here\nHint: .*\./{extra}"
            ):
                extensions.module(group, name)
        refused = CliRunner().invoke(app, ["evaluate", "a", "b"])
        assert refused.exit_code == 5
        assert "the command evaluate comes with dptext-etl-eval, which is not installed here" in refused.output
    finally:
        extensions.installed.cache_clear()


def test_an_engine_that_no_package_brings_is_refused_with_the_names_that_exist(install):
    install("not_one", "Engine = 1", "[dptext_etl.engines]\nnot_one = not_one:Engine\n")
    with pytest.raises(PolicyError, match=r"there is no engine 'duckdb'; available: not_one, polars, spark\n"):
        engines.named("duckdb")
    with pytest.raises(PolicyError, match=r"not_one of .* must name an Engine; it names not_one:Engine"):
        engines.named("not_one")
    assert (engines.named("polars"), engines.named("spark").__name__) == (engines.LocalEngine, "SparkEngine")


@pytest.mark.parametrize("extra", ["models", "eval"])
def test_the_table_of_our_packages_is_what_they_bring(extra):
    pytest.importorskip(f"dptext_etl_{extra}")
    groups = ("mechanisms", "postprocesses", "scores", "encoders", "commands")
    brought = {
        (group, name)
        for group in groups
        for name, point in extensions.installed(group).items()
        if point.value.startswith(f"dptext_etl_{extra}.")
    }
    assert brought == {part for part, at in extensions.ELSEWHERE.items() if at == extra}
