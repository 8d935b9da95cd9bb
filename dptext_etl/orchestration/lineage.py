"""Guard an asset graph: raw text and staged rows may reach other assets only through publication.

The guard follows the dependencies that Dagster knows: inputs, `deps`, asset checks and the assets that they read. All
outputs of a step count as made from all its inputs, and if one output is raw, all are. The assets that a raw asset is
made from are raw as well, unless they are marked public. A published asset is a boundary only if `build_definitions`
made its step; the guard ignores the same mark on any other asset.

The guard does not see files that a step opens without a dependency, op jobs, sensors, and assets that another code
location calls raw; name such assets with `raw=`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import dagster as dg

from dptext_etl.errors import GateError, PolicyError, suggestion
from dptext_etl.orchestration.resources import PUBLIC_TAG, PUBLISHED_TAG, RAW_TAG, STAGED_TAG

Kind = Literal["raw", "staged", "published", "gate", "check", "other"]
Checked = TypeVar("Checked")

_STAGES: dict[str, Kind] = {RAW_TAG: "raw", STAGED_TAG: "staged", PUBLISHED_TAG: "published"}
"""Kinds of assets by their tags; the last two count only on assets that our own steps make."""
_STEPS = "dptext_etl.orchestration.assets"
_GATES = "dptext_etl.orchestration.gates"
_MOST_PATHS = 5


@dataclass(frozen=True)
class _Node:
    kind: Kind  # kind of the asset, which decides its allowed dependencies
    dataset: str  # dataset of one of our stages; empty for other assets
    above: frozenset[str]  # names of the assets that it is made from
    blocking: bool = False  # True for a check that stops later steps
    made_with: frozenset[str] = frozenset()  # names of the assets that the same step makes
    public: bool = False  # True for an asset that holds no raw text, though raw assets are made from it or with it


def check_lineage(defs: Checked, raw: Iterable[dg.CoercibleToAssetKey] = ()) -> Checked:
    """Refuse an asset graph in which raw text avoids publication, and return the definitions.

    Every asset that depends on a raw asset, directly or through others, must be raw itself (inside the boundary, marked
    `tags={"dptext/raw": ""}`) or come after a published asset. Three more kinds are raw, unless they are marked
    `tags={"dptext/public": ""}`: assets that a staged asset of `build_definitions` reads, assets that a raw asset is
    made from, and assets that one step makes together with a raw asset. Only the published asset of its dataset and its
    gates may read a staged asset. A check of a raw asset that reads only raw assets may block: it publishes nothing.
    Any other check that reads raw or staged rows declares `metadata={"dptext/raw": True}` and must not block, because
    its decision would depend on raw text (docs/spec/privacy.md#no-row-decision).

    Args:
        defs: Definitions, a repository, or a list of assets and asset checks; all jobs on them are covered.
        raw: Keys of more raw assets, such as raw assets of another code location.

    Returns:
        `defs`, unchanged.

    Raises:
        GateError: An asset is made from raw text or from the quarantine; the error shows every path.
        PolicyError: The graph has no asset of that name, or `defs` has no complete asset graph.

    Example:
        ```python
        import dagster as dg
        from dptext_etl.orchestration import build_definitions, check_lineage

        defs = check_lineage(dg.Definitions.merge(build_definitions("privacy.toml"), dg.Definitions(assets=[topics])))
        ```
    """
    nodes = _nodes(_assets(defs), {_written(dg.AssetKey.from_coercible(key)) for key in raw})
    paths = list[str]()
    for path in _paths(nodes):  # each with the kind of its start, and the published asset to read instead
        source, last = nodes[path[0]], nodes[path[-1]]
        instead = [name for name, node in nodes.items() if node.kind == "published" and node.dataset == source.dataset]
        reason = "raw text" if source.kind == "raw" else "staged rows, judged by no gate"
        if last.kind == "check":
            reason += "; a check that reads it must not block"
        elif instead and instead[0] not in path:
            reason += f"; read {instead[0]} instead"
        paths.append(f"{' -> '.join(path)}  ({reason})")
    if paths:
        more = [f"and {len(paths) - _MOST_PATHS} more"] if len(paths) > _MOST_PATHS else []
        raise GateError("\n  ".join(["unpublished rows reach assets:", *paths[:_MOST_PATHS], *more]), _HINT)
    return defs


_HINT = (
    'read the published asset instead; mark assets inside the boundary as raw: tags={"dptext/raw": ""}'
    ' (a check: metadata={"dptext/raw": True}, not blocking); assets'
    " that raw assets are made from are raw, unless they are marked"
    ' tags={"dptext/public": ""}'
)


def _assets(defs: Any) -> Iterator[dg.AssetsDefinition]:
    if isinstance(defs, Sequence) and not isinstance(defs, dg.Definitions):  # Definitions are a tuple of fields
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
        msg = f"a {type(defs).__name__} has no asset graph"
        raise PolicyError(msg, "give Definitions, a repository or a list of assets")
    yield from graph.assets_defs


def _nodes(assets: Iterable[dg.AssetsDefinition], raw: set[str]) -> dict[str, _Node]:
    nodes: dict[str, _Node] = {}
    checks: dict[str, str] = {}
    for item in assets:
        module: str | None = None  # of the code of a step; assets without a step and graphs of steps have none
        if item.is_executable and isinstance(item.node_def, dg.OpDefinition):
            code = item.node_def.compute_fn
            module = getattr(getattr(code, "decorated_fn", code), "__module__", None)
        read = {_written(key) for key in item.keys_by_input_name.values()} if item.is_executable else set()
        declared = {spec.key: {_written(dep.asset_key) for dep in spec.deps} for spec in item.specs}
        keys = {_written(key) for key in declared}
        step = (read.union(*declared.values()) - keys) if item.is_executable else set()
        for spec in item.specs:
            name = _written(spec.key)
            marks: Mapping[str, Any] = {**spec.metadata, **spec.tags}
            tag = next((tag for tag in _STAGES if tag in marks and (tag == RAW_TAG or module == _STEPS)), "")
            kind: Kind = "raw" if name in raw else _STAGES.get(tag, "other")
            above = frozenset(step or declared[spec.key])
            made_with = frozenset(keys) if item.is_executable else frozenset[str]()
            public = PUBLIC_TAG in marks
            nodes[name] = _Node(kind, str(marks.get(tag, "")), above, made_with=made_with, public=public)
        for check in item.check_specs:
            judged = {_written(check.asset_key), *(_written(dep.asset_key) for dep in check.additional_deps)}
            above = frozenset(judged | step | read | keys)
            check_kind: Kind = "gate" if module == _GATES else "check" if RAW_TAG in check.metadata else "other"
            name = f"check {check.name} of {_written(check.asset_key)}"
            nodes[name] = _Node(check_kind, "", above, check.blocking)
            checks[name] = _written(check.asset_key)
    for staged in [node for node in nodes.values() if node.kind == "staged"]:
        for source in staged.above & nodes.keys():
            nodes[source] = replace(nodes[source], kind="raw", dataset=nodes[source].dataset or staged.dataset)
    waiting = [name for name in sorted(nodes) if nodes[name].kind == "raw"]
    while waiting:
        here = nodes[waiting.pop()]
        for name in sorted((here.above | here.made_with) & nodes.keys()):
            if nodes[name].kind == "other" and not nodes[name].public:
                nodes[name] = replace(nodes[name], kind="raw", dataset=here.dataset)
                waiting.append(name)
    for name, judged_asset in checks.items():
        reads = [nodes[above].kind for above in nodes[name].above if above in nodes]
        if nodes[name].kind == "other" and nodes[judged_asset].kind == "raw" and set(reads) == {"raw"}:
            nodes[name] = replace(nodes[name], kind="raw")
    if missing := raw - nodes.keys():
        close = " ".join(filter(None, (suggestion(name, nodes) for name in sorted(missing))))
        raise PolicyError(f"no asset is called {', '.join(sorted(missing))}", close or "name raw assets by their keys")
    return nodes


def _paths(nodes: Mapping[str, _Node]) -> list[list[str]]:
    """Return the shortest path from an unpublished asset to each asset that it must not reach."""
    below: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(nodes):
        for above in nodes[name].above:
            below[above].append(name)
    sources = [name for name in sorted(nodes) if nodes[name].kind in ("raw", "staged")]
    paths: dict[str, list[str]] = {}  # by their end; all assets between the ends are other ones
    passed_on: set[str] = set()
    queue = deque([name] for name in sources)
    while queue:
        path = queue.popleft()
        for name in below[path[-1]]:
            if _may_read(nodes[name], nodes[path[-1]]):
                continue
            passed_on.add(path[-1])
            if name not in paths:
                paths[name] = [*path, name]
                if nodes[name].kind == "other":
                    queue.append(paths[name])
    return [path for name, path in paths.items() if name not in passed_on or nodes[name].kind != "other"]


def _may_read(reader: _Node, read: _Node) -> bool:
    if reader.kind == "published":
        return read.kind == "staged" and read.dataset == reader.dataset
    if reader.kind == "check":
        return not reader.blocking and read.kind != "other"
    return reader.kind == "gate" or (reader.kind in ("raw", "staged") and read.kind == "raw")


def _written(key: dg.AssetKey) -> str:
    return key.to_user_string()
