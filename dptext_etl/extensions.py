"""Find mechanisms, gates, commands and the like: files of this package, and entry points of installed packages.

A part is one module, and the module's name is the part's name. Modules in the folders of this package are found as they
are. Another package lists its modules in its pyproject.toml (docs/extending.md):

    [project.entry-points."dptext_etl.mechanisms"]
    shout = "my_package.shout"
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, Literal, TypeVar, get_args

from dptext_etl.errors import PolicyError, seam, suggestion

Group = Literal[
    "mechanisms", "postprocesses", "gates", "scores", "metrics", "attacks", "corpora", "keys", "commands", "vectors",
    "engines", "encoders",
]  # fmt: skip
Part = TypeVar("Part")

DISTRIBUTION = "dptext-etl"

_FOLDERS: dict[Group, str] = {
    "mechanisms": "dptext_etl.mechanisms",
    "gates": "dptext_etl.checks.gates",
    "scores": "dptext_etl.allocation.scores",
    "corpora": "dptext_etl.corpora.shipped",
}
_SINGULAR: dict[str, str] = {"postprocesses": "post-processing", "corpora": "corpus", "vectors": "set of word vectors"}
"""Names of a part in messages, by group; in all other groups it is the group's name without the last letter."""
_LONGEST = 40  # characters of a wrong name that a message repeats, at most: a longer one may be a text
_EXTRAS: dict[str, dict[Group, str]] = {
    "models": {
        "mechanisms": "adept dp_paraphrase dp_prompt dpbart dpmlm",
        "postprocesses": "rewrite_again",
        "scores": "attention keybert ner pos sd wi yake",
        "encoders": "sentence_transformers",
        "commands": "calibrate train",
    },
    "eval": {"commands": "audit evaluate rehearse"},
}
ELSEWHERE = {
    (group, name): extra for extra, brought in _EXTRAS.items() for group in brought for name in brought[group].split()
}
"""Parts that come with the two other packages of this repository, by group and name, with the extra of each."""


def shipped(group: Group) -> tuple[str, ...]:
    """Return the names of the parts that are files of this package, sorted."""
    if group not in _FOLDERS:
        return ()
    folder = importlib.import_module(_FOLDERS[group])
    return tuple(sorted(name for _, name, _ in pkgutil.iter_modules(folder.__path__)))


@cache
def installed(group: Group) -> dict[str, EntryPoint]:
    points: dict[str, EntryPoint] = {}
    for point in sorted(set(entry_points(group=f"dptext_etl.{group}")), key=lambda entry: entry.name):
        if point.name in shipped(group) or point.name in points:
            other = DISTRIBUTION if point.name in shipped(group) else _distribution(points[point.name])
            raise PolicyError(
                f"two packages bring {point.name!r} in dptext_etl.{group}: {other} and {_distribution(point)}",
                f"uninstall one: pip uninstall {_distribution(point)}",
            )
        points[point.name] = point
    return points


def exists(group: Group, name: object) -> bool:
    """Return whether there is a part of that name; entry points are read only if no file of this package has it."""
    return name in shipped(group) or name in installed(group)


def names(group: Group) -> tuple[str, ...]:
    return tuple(sorted({*shipped(group), *installed(group)}))


def distribution(part: object) -> str:
    """Return the distribution of an object's class, as pip names it."""
    package = type(part).__module__.partition(".")[0]
    points = (point for group in get_args(Group) for point in installed(group).values())
    distributions = (_distribution(point) for point in points if point.value.partition(".")[0] == package)
    return DISTRIBUTION if package == __package__ else next(distributions, package)


def require(group: Group, name: str, package: str) -> None:
    """Refuse a part that is not installed here, and name the package that brings it."""
    if not exists(group, name):
        extra = package.removeprefix(f"{DISTRIBUTION}-")
        wheel = f"install its wheel, or `pip install ./{extra}` in a checkout"
        raise PolicyError(
            f"the {_SINGULAR.get(group, group[:-1])} {name} comes with {package}, which is not installed here",
            wheel if extra in _EXTRAS else f"pip install {package}",
        )


def module(group: Group, name: str) -> ModuleType:
    if name in shipped(group):
        return importlib.import_module(f"{_FOLDERS[group]}.{name}")
    if (group, name) in ELSEWHERE:
        require(group, name, f"{DISTRIBUTION}-{ELSEWHERE[group, name]}")
    content = loaded(group, name)
    if not isinstance(content, ModuleType) or content.__name__.rpartition(".")[2] != name:
        package = _distribution(installed(group)[name])
        raise PolicyError(
            f"the entry point {name} of {package} must name a module called {name}",
            "name the module after the entry point (docs/extending.md)",
        )
    return content


def loaded(group: Group, name: str) -> Any:
    """Import the object that an entry point names; refuse a name that no package has, and list all names."""
    point = installed(group).get(name)
    if point is None:
        what = repr(name) if name.isidentifier() and len(name) <= _LONGEST else "of that name"
        msg = f"there is no {_SINGULAR.get(group, group[:-1])} {what}; available: {', '.join(names(group))}"
        hint = suggestion(name, names(group)) or "if another package brings it, install that package here too"
        raise PolicyError(msg, hint)
    with seam(f"importing {point.value} of {_distribution(point)}", PolicyError, "its installation may be incomplete"):
        return point.load()


def load(group: Group, name: str, base: type[Part]) -> type[Part]:
    """Return the one class of a part, a subclass of `base`; refuse a module that holds none or several."""
    kinds = classes(group, name, base)
    if len(kinds) != 1:
        raise PolicyError(
            f"{kinds[0].__module__} must hold exactly one {base.__name__}; it holds {len(kinds)}",
            "keep one of the classes in this module, and move the others (docs/extending.md)",
        )
    return kinds[0]


def classes(group: Group, name: str, base: type[Part]) -> list[type[Part]]:
    """Return the classes of a part, in the order of their names; refuse a module that holds none."""
    content = module(group, name)
    kinds = [
        item
        for _, item in inspect.getmembers(content, inspect.isclass)
        if issubclass(item, base) and item.__module__ == content.__name__ and not inspect.isabstract(item)
    ]
    if not kinds:
        raise PolicyError(
            f"{content.__name__} must hold a {base.__name__}; it holds 0",
            "define a subclass in this module, and do not import it from elsewhere (docs/extending.md)",
        )
    return kinds


def exports(
    package: str, homes: Mapping[str, str], needs: tuple[str, ...] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package whose public names are imported at their first use.

    `homes` has the module of each name, relative to the package. If one of the libraries `needs` is missing, the error
    names the extra, which is called like the first one.
    """

    def attribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(importlib.import_module(homes[name], package), name)
        except ModuleNotFoundError as missing:
            if missing.name is None or missing.name.partition(".")[0] not in needs:
                raise
        raise PolicyError(f"{name} needs {needs[0].title()}, which is not installed", pip_install(needs[0]))

    return attribute, lambda: sorted(sys.modules[package].__all__)


def pip_install(extra: str) -> str:
    """Return the command that installs the libraries of an extra of this distribution."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value.partition(".")[0]
