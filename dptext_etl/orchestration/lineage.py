"""The taint guard of an asset graph: raw text and quarantined rows reach an asset through publication, or not at all.

What counts is what an asset depends on, as Dagster has it: inputs, `deps`, asset checks and what those read besides.
All outputs of one step count as made from all its inputs. A published asset is a boundary only where the step behind
it is the one that `build_definitions` makes; the same mark on any other asset is not believed.

Not seen: files that a step opens without a dependency, op jobs, sensors, and assets that another code location calls
raw: name those with `raw=`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import dagster as dg

from dptext_etl.errors import GateError, PolicyError
from dptext_etl.orchestration.names import PUBLISHED_TAG, RAW_TAG, STAGED_TAG

Kind = Literal["raw", "staged", "published", "gate", "check", "other"]
Checked = TypeVar("Checked")

_STEPS = "dptext_etl.orchestration.assets"
_GATES = {"dptext_etl.orchestration.gates", "dptext_etl.orchestration.recheck"}
_SHOWN = 5


@dataclass(frozen=True)
class _Node:
    """An asset, or an asset check.

    Attributes:
        kind: What it may be made from follows from this.
        dataset: The dataset that a stage of ours belongs to; empty elsewhere.
        above: Names of what it is made from.
        blocking: Whether it is a check that stops what follows.
    """

    kind: Kind
    dataset: str
    above: frozenset[str]
    blocking: bool = False


def check_lineage(defs: Checked, raw: Iterable[dg.CoercibleToAssetKey] = ()) -> Checked:
    """Refuse an asset graph in which raw text gets around publication, and return the definitions.

    Whatever depends on a raw asset, directly or through others, must be raw itself (inside the boundary, marked
    `tags={"dptext/raw": ""}`) or lie behind a published asset. A staged asset is read by the published asset of its
    dataset and by its gates alone. A check that reads raw or staged rows says so by `metadata={"dptext/raw": True}`,
    and must not block: what it stopped would depend on raw text (docs/spec/privacy.md#no-row-decision).

    Args:
        defs: Definitions, a repository, or a list of assets and asset checks; all jobs on them are covered.
        raw: Keys of more raw assets, such as those of another code location.

    Returns:
        `defs`, unchanged.

    Raises:
        GateError: Something is made from raw text or from the quarantine; every way is written out.
        PolicyError: Nothing of that name is in the graph, or `defs` has no whole asset graph.

    Example:
        ```python
        import dagster as dg
        from dptext_etl.orchestration import build_definitions, check_lineage

        defs = check_lineage(dg.Definitions.merge(build_definitions("privacy.toml"), dg.Definitions(assets=[topics])))
        ```
    """
    nodes = _nodes(_assets(defs), {_written(dg.AssetKey.from_coercible(key)) for key in raw})
    ways = [_told(way, nodes) for way in _ways(nodes)]
    if ways:
        more = [f"and {len(ways) - _SHOWN} more"] if len(ways) > _SHOWN else []
        raise GateError("\n  ".join(["what is not published reaches assets:", *ways[:_SHOWN], *more]), _HINT)
    return defs


_HINT = (
    'read the published asset instead; what stays inside the boundary is marked raw itself: tags={"dptext/raw": ""}'
    ' (a check: metadata={"dptext/raw": True}, not blocking)'
)


def _assets(defs: Any) -> Iterator[dg.AssetsDefinition]:
    """All definitions of assets and checks, as Dagster resolves them."""
    if isinstance(defs, Sequence) and not isinstance(defs, dg.Definitions):  # which is a tuple of its fields
        checks = [item for item in defs if isinstance(item, dg.AssetChecksDefinition)]
        assets = [item for item in defs if not isinstance(item, dg.AssetChecksDefinition)]
        defs = dg.Definitions(assets=assets, asset_checks=checks)
    if isinstance(defs, dg.Definitions):
        graph: Any = defs.resolve_asset_graph()
    elif isinstance(defs, dg.JobDefinition):
        msg = "a job knows no asset further up than those that its own read, so nothing can be said about it"
        raise PolicyError(msg, "give the definitions that the job belongs to")
    else:
        graph = getattr(defs, "asset_graph", None)
    if graph is None:
        raise PolicyError(
            f"a {type(defs).__name__} has no asset graph", "give Definitions, a repository or a list of assets"
        )
    yield from graph.assets_defs


def _nodes(assets: Iterable[dg.AssetsDefinition], raw: set[str]) -> dict[str, _Node]:
    nodes: dict[str, _Node] = {}
    for item in assets:
        module = _module(item)
        read = {_written(key) for key in item.keys_by_input_name.values()} if item.is_executable else set()
        declared = {spec.key: {_written(dep.asset_key) for dep in spec.deps} for spec in item.specs}
        own = {_written(key) for key in declared}
        step = (read.union(*declared.values()) - own) if item.is_executable else set()
        for spec in item.specs:
            name = _written(spec.key)
            kind, dataset = _kind(spec, module)
            above = frozenset(step or declared[spec.key])
            nodes[name] = _Node("raw" if name in raw else kind, dataset, above)
        for check in item.check_specs:
            judged = {_written(check.asset_key), *(_written(dep.asset_key) for dep in check.additional_deps)}
            above = frozenset(judged | step | read)
            check_kind: Kind = "gate" if module in _GATES else "check" if RAW_TAG in check.metadata else "other"
            nodes[f"check {check.name} of {_written(check.asset_key)}"] = _Node(check_kind, "", above, check.blocking)
    if missing := raw - nodes.keys():
        raise PolicyError(f"no asset is called {', '.join(sorted(missing))}", "name raw assets by their keys")
    return nodes


def _kind(spec: dg.AssetSpec, module: str | None) -> tuple[Kind, str]:
    marks: Mapping[str, Any] = {**spec.metadata, **spec.tags}
    if RAW_TAG in marks:
        return "raw", str(marks[RAW_TAG])
    if module == _STEPS and STAGED_TAG in marks:
        return "staged", str(marks[STAGED_TAG])
    if module == _STEPS and PUBLISHED_TAG in marks:
        return "published", str(marks[PUBLISHED_TAG])
    return "other", ""


def _module(item: dg.AssetsDefinition) -> str | None:
    """Where the code of a step is written; None for what has no step, and for graphs of steps."""
    if not item.is_executable or not isinstance(item.node_def, dg.OpDefinition):
        return None
    function = getattr(item.node_def.compute_fn, "decorated_fn", item.node_def.compute_fn)
    return getattr(function, "__module__", None)


def _ways(nodes: Mapping[str, _Node]) -> list[list[str]]:
    """Return the shortest way from something unpublished to each end that it must not reach."""
    below: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(nodes):
        for above in nodes[name].above:
            below[above].append(name)
    sources = [name for name in sorted(nodes) if nodes[name].kind in ("raw", "staged")]
    came_from: dict[str, str] = {}
    passed_on: set[str] = set()
    queue = deque(sources)
    while queue:
        here = queue.popleft()
        for name in below[here]:
            if _may_read(nodes[name], nodes[here]):
                continue
            passed_on.add(here)
            if name not in came_from:
                came_from[name] = here
                if nodes[name].kind == "other":
                    queue.append(name)
    return [_way(name, came_from, nodes) for name in came_from if name not in passed_on or nodes[name].kind != "other"]


def _may_read(reader: _Node, read: _Node) -> bool:
    if reader.kind == "published":
        return read.kind == "staged" and read.dataset == reader.dataset
    if reader.kind == "check":
        return not reader.blocking and read.kind != "other"
    return reader.kind == "gate" or (reader.kind in ("raw", "staged") and read.kind == "raw")


def _way(end: str, came_from: Mapping[str, str], nodes: Mapping[str, _Node]) -> list[str]:
    way = [end, came_from[end]]
    while nodes[way[-1]].kind == "other":
        way.append(came_from[way[-1]])
    return way[::-1]


def _told(way: Sequence[str], nodes: Mapping[str, _Node]) -> str:
    """One line: the way, what begins it, and which published asset stands for it."""
    source, last = nodes[way[0]], nodes[way[-1]]
    instead = [name for name, node in nodes.items() if node.kind == "published" and node.dataset == source.dataset]
    said = "raw text" if source.kind == "raw" else "the quarantine, judged by no gate"
    if last.kind == "check":
        said += "; a check that reads it must not block"
    elif instead and instead[0] not in way:
        said += f"; read {instead[0]} instead"
    return f"{' -> '.join(way)}  ({said})"


def _written(key: dg.AssetKey) -> str:
    return key.to_user_string()
