"""Define the shared parts of commands: options, the format of their help, confirmation, and facts about mechanisms."""

from __future__ import annotations

import inspect
import json
import re
import sys
import tomllib
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import typer
import typer.main
from typer.core import TyperArgument, TyperCommand

from dptext_etl.cli import terminal
from dptext_etl.errors import PolicyError, UsageError, suggestion

if TYPE_CHECKING:
    from pydantic import BaseModel

    from dptext_etl.guarantee import Guarantee
    from dptext_etl.mechanism import Mechanism, PostProcess
    from dptext_etl.policy import Policy


def parameters(kind: type[BaseModel]) -> list[dict[str, Any]]:
    """Return name, type, default (None if required), required and meaning of every parameter."""
    meanings: dict[str, str] = {}
    for owner in kind.__mro__:  # the "Attributes:" of Google docstrings, a class's own before its parents'
        section = re.search(r"^Attributes:\n((?:[ ]+.*\n?|\n)+)", inspect.getdoc(owner) or "", re.MULTILINE)
        for entry in re.split(r"\n {4}(?=\w)", "\n" + section.group(1).rstrip()) if section else ():
            name, colon, text = entry.strip().partition(":")
            if colon:
                meanings.setdefault(name, " ".join(text.split()))
    excluded = set() if getattr(kind, "cannot_divide", None) is None else {"allocation"}
    return [
        {
            "name": name,
            "type": type_name(field.annotation),
            "required": field.is_required(),
            "default": None if field.is_required() else field.get_default(call_default_factory=True),
            "meaning": meanings.get(name, ""),
        }
        for name, field in kind.model_fields.items()
        if name not in excluded
    ]


def value(mechanism: Mechanism, name: str) -> Any:
    """Return the value of a parameter; an entry with nested entries becomes JSON of the nondefault ones."""
    from pydantic import BaseModel

    item = getattr(mechanism, name)
    return item.model_dump_json(exclude_defaults=True) if isinstance(item, BaseModel) else item


def guarantee(claim: Guarantee) -> dict[str, Any]:
    """Return a guarantee as plain data, every disclosure with its meaning."""
    return {
        "class": claim.guarantee_class.value,
        "meaning": claim.guarantee_class.meaning,
        "unit": claim.unit,
        "neighbors": claim.neighbors,
        "disclosures": {item.value: item.meaning for item in sorted(claim.disclosures)},
        "assumptions": sorted(claim.assumptions),
        "assumptions_without_a_ledger": sorted(claim.without_ledger().assumptions),
    }


def variants(kind: type[Mechanism]) -> list[str]:
    field = kind.model_fields.get("variant")
    return [str(item) for item in get_args(field.annotation)] if field else []


def examples(kind: type[Mechanism]) -> dict[str | None, Mechanism]:
    """Return the mechanism's small example by variant; the key is None if it has no variants."""
    example = kind.example()
    return {name: example.model_copy(update={"variant": name}) for name in variants(kind)} or {None: example}


def summary(kind: type[BaseModel]) -> str:
    """Return the first sentence of the mechanism's file."""
    text = inspect.getdoc(inspect.getmodule(kind)) or inspect.getdoc(kind) or ""
    return text.partition("\n\n")[0].replace("\n", " ")


def cost(mechanism: Mechanism, words: int) -> dict[str, Any]:
    """Return the cost of a text of `words` words in plain units; amounts without a claim are infinite."""
    from dptext_etl.guarantee import FINE, MICRO
    from dptext_etl.mechanism import worst_spend

    spend = worst_spend(mechanism, words)
    return {
        "words": words,
        "epsilon": spend.epsilon,
        "delta": spend.delta / FINE,
        "epsilon_tight": spend.eps_tight / MICRO,
        "rho": spend.rho / MICRO,
        "log10_odds": spend.log10_odds,
    }


def consent(mechanism: Mechanism) -> list[str]:
    """Return the entries that a policy needs for the mechanism: disclosures and classes to consent to."""
    from dptext_etl.guarantee import DEFAULT_ALLOWED, GuaranteeClass

    claim = mechanism.guarantee
    disclosures = ", ".join(f'"{item.value}"' for item in sorted(claim.disclosures - DEFAULT_ALLOWED))
    entries = [f"allow = [{disclosures}]"] if disclosures else []
    if claim.guarantee_class is GuaranteeClass.UMLDP:
        entries.append(f'accept_unbounded = ["{claim.guarantee_class.value}"]')
    return entries if mechanism.mode == "strict" else [*entries, "publish = false"]


def type_name(annotation: Any) -> str:
    """Write a type for people, such as: number, whole number, text, "a" | "b"."""
    plain = {float: "number", int: "whole number", str: "text", bool: "true | false", type(None): "none"}
    if annotation in plain:
        return plain[annotation]
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " | ".join(str(item) for item in inner)
    if origin in (Union, types.UnionType):
        return " | ".join(type_name(item) for item in inner)
    if origin in (list, tuple, set, frozenset):
        return "list of " + " | ".join(dict.fromkeys(type_name(item) for item in inner if item is not Ellipsis))
    return type_name(inner[0]) if inner else getattr(annotation, "__name__", str(annotation))


def show_parameters(entries: Sequence[Mapping[str, Any]]) -> None:
    """Print parameters; each entry is one of `parameters`, with its `value`."""
    rows = []
    terminal.heading("Parameters")
    for item in entries:
        default = "required" if item["required"] else item["default"]
        rows.append((item["name"], item["type"], default, item["value"], item["meaning"]))
    terminal.table(("name", "type", "default", "here", "meaning"), rows)


def model_facts(mechanism: Mechanism, words: int) -> dict[str, Any]:
    """Return the mechanism's facts about one draw or about its noise, and `conversions` of the cost of a text.

    A conversion is the least known epsilon at a fixed delta, with its rule, for one record or several of one person.
    """
    from dptext_etl.accounting import joint, least
    from dptext_etl.guarantee import MICRO
    from dptext_etl.mechanism import worst_spend

    described = {name: facts for name, facts in mechanism.described().items() if name != "table"}
    if not described:
        return {}
    spend = worst_spend(mechanism, words)
    bounds = {(records, delta): least(joint([spend] * records, delta)) for records in (1, 10) for delta in (1e-6, 1e-9)}
    conversions = [
        {"records": records, "delta": delta, "epsilon": bound.epsilon / MICRO, "rule": bound.rule}
        for (records, delta), bound in bounds.items()
    ]
    return {**described, "conversions": conversions}


_NO_COST = "0: it sees only released texts, and must have learned from public texts (or from other records, per record)"
_USE = 'postprocess = [{{ name = "{name}", … }}] in a [[column]] of a policy; only runs carry it out'


def postprocess_facts(name: str, kind: type[PostProcess], values: dict[str, Any]) -> dict[str, Any]:
    """Return facts about a post-processing; also about its model where the parameters name one."""
    from dptext_etl import catalog

    required = [key for key, field in kind.model_fields.items() if field.is_required() and key not in values]
    step = kind.example() if required else catalog.build_postprocess({"name": name, **values})
    note = f"{', '.join(required)}: from its small example; set your own with -p" if required else None
    return {
        "name": name,
        "summary": summary(kind),
        "publishable": True,
        "parameters": [{**item, "value": getattr(step, item["name"])} for item in parameters(kind)],
        "configuration": step.configuration(),
        "cfg": step.cfg(),
        "spend": {"epsilon": 0, "delta": 0, "because": _NO_COST, "training_provenance": step.training.provenance},
        "consent": [_USE.format(name=name)],
        "computing": None if step.computing is None else step.computing.as_dict(),
        "note": note,
    }


def show_postprocess(facts: dict[str, Any]) -> None:
    terminal.say(facts["summary"])
    terminal.heading("Cost")
    terminal.pairs({"spend": facts["spend"]["because"], "learned from": facts["spend"]["training_provenance"] or "?"})
    show_parameters(facts["parameters"])
    terminal.say(f"A policy uses it so: {facts['consent'][0]}")
    if facts["note"]:
        terminal.say(f"\n{facts['note']}.")


AcceptLowerCap = Annotated[
    bool, typer.Option("--accept-lower-cap", help="Lower the ledger's cap to the policy's cap, permanently.")
]
AcceptFewerRows = Annotated[
    bool,
    typer.Option(
        "--accept-fewer-rows", help="Leave out more than 10% of the published rows that the source still holds."
    ),
]
Profile = Annotated[bool, typer.Option("--profile", help="Print the time of each stage; --json always has it.")]
PolicyFile = Annotated[Path, typer.Argument(metavar="POLICY", help="The policy file, such as privacy.toml.")]
Partition = Annotated[
    str | None, typer.Option(metavar="NAME", help='Text that replaces "{partition}" in the policy\'s source and sink.')
]
Audience = Annotated[
    str | None, typer.Option(metavar="NAME", help="The table of this audience, instead of the policy's own.")
]
Engine = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Compute in this process (polars), on the executors of the Spark that is configured here (spark), or by "
        "an engine of another package.",
    ),
]
Device = Annotated[
    Literal["auto", "cpu", "cuda"] | None,
    typer.Option(help="Device of models; auto uses a GPU if there is one. This setting never enters a release."),
]
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16"] | None,
    typer.Option(help="Number type of models; auto uses bfloat16 if the hardware has it."),
]
MechanismName = Annotated[str, typer.Argument(metavar="NAME", help="A mechanism; `dptext mechanisms` lists them.")]
Parameters = Annotated[
    list[str] | None,
    typer.Option("-p", "--parameter", metavar="NAME=VALUE", help="A parameter of the mechanism; repeat as needed."),
]
AllocationScores = Annotated[
    str | None,
    typer.Option(
        "--allocation",
        metavar="SCORES|SHARES",
        help="Divide one budget by scores of words (ic,pos,ner,wi,sd), or by position (uniform, or shares: 3,2,1).",
    ),
]
ShuffledRows = Annotated[
    int | None,
    typer.Option(
        "--shuffled",
        metavar="ROWS",
        min=2,
        help="Show the epsilon of a record if at least ROWS texts are published without ids and order.",
    ),
]
FirstRelease = Annotated[
    float | None,
    typer.Option(
        "--first",
        help="With scores in --allocation: epsilon of a first release; its words are scored, not the raw ones.",
    ),
]
Full = Annotated[bool, typer.Option("--full", help="Show every detail, on more than one screen.")]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"] | None,
    typer.Option(help="Least severe line of the log; by default warnings, and without a terminal slow progress."),
]
LogFormat = Annotated[
    Literal["text", "json"],
    typer.Option(help="Log as text, or as one JSON object per line with dataset, release, partition, phase, and rows."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation; for scripts.")]

_JSON = "Print one JSON object on stdout and nothing else there."
_SET = "Set source, sink, table.name, release, or environment of the policy for this call; repeat as needed."
LEDGER = "sqlite:///PATH, a path, postgresql://HOST/DATABASE, or env:NAME."
_ID_KEY = "Key of the ledger's ids (env:NAME or file:PATH); by default the file next to the ledger."


class Command(TyperCommand):
    """Show the docstring of a command as flowing paragraphs, whose line breaks Typer would keep.

    The sections "Args:" and "Raises:" of a docstring are omitted: they are for readers of the code. Every command has
    --json (`terminal.as_json`), and a command that reads a policy file also has --set.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        if not any("--json" in item.opts for item in self.params):  # a command of another package may declare its own
            self.params.append(_shared()["json"])
        if any("POLICY" in (item.metavar or "") for item in self.params if isinstance(item, TyperArgument)):
            self.params.append(_shared()["settings"])
        paragraphs = (" ".join(paragraph.split()) for paragraph in inspect.cleandoc(self.help or "").split("\n\n"))
        self.help = "\n\n".join(text for text in paragraphs if not text.startswith(("Args: ", "Raises: ")))

    def get_short_help_str(self, limit: int = 1000) -> str:  # noqa: ARG002
        """Return the first sentence as a whole, for the help of a group."""
        return super().get_short_help_str(1000)


F = TypeVar("F", bound=Callable[..., None])


def command(app: typer.Typer, example: str, keys: Sequence[str], cls: type[TyperCommand] = Command) -> Callable[[F], F]:
    """Add a command to an application; its help ends with an example and the keys of its JSON object."""
    with_keys = f"\n\nKeys with --json: {', '.join(keys)}." if keys else ""
    return app.command(cls=cls, epilog=f"Example: {example}{with_keys}")


_SETTINGS, STORE, _LEDGER = "settings", "storage_options", "ledger"
"""Entries of `terminal.call`; of a ledger that a policy names, `STORE` has the policy's storage options."""


def _keep(name: str) -> Callable[[Any], None]:
    """Return the callback of an option whose value is an entry of `terminal.call`, not an argument of the command."""

    def keep(value: Any) -> None:
        terminal.call()[name] = value

    return keep


_Json = typer.Option("--json", callback=_keep(terminal.JSON), expose_value=False, help=_JSON)
_Set = typer.Option("--set", metavar="ENTRY=VALUE", callback=_keep(_SETTINGS), expose_value=False, help=_SET)
_Policy = typer.Argument(metavar="POLICY", help="A policy file, whose ledger it is; or give --ledger.")


@cache
def _shared() -> dict[str | None, Any]:
    """Return the options and arguments of many commands by name, which Typer reads from a signature."""
    app = typer.Typer(add_completion=False)

    @app.command()
    def _with_all(
        policy: Annotated[str | None, _Policy] = None,
        ledger: Annotated[str | None, typer.Option(metavar="URL", help=LEDGER)] = None,
        id_key: Annotated[str | None, typer.Option(metavar="REF", help=_ID_KEY)] = None,
        settings: Annotated[list[str] | None, _Set] = None,
        json: Annotated[bool, _Json] = False,
    ) -> None: ...

    return {item.name: item for item in typer.main.get_command(app).params}


def load_policy(path: str | Path) -> Policy:
    """Read a policy file with the --set entries of the current command."""
    from dptext_etl.policy import Policy

    assignments = terminal.call().get(_SETTINGS) or ()
    settings = name_values(assignments, "a setting is written ENTRY=VALUE", "for example --set release=2026-11")
    return Policy.load(path, settings)


def refuse_settings(why: str) -> None:
    """Refuse --set where no policy file is read."""
    if terminal.call().get(_SETTINGS):
        raise UsageError(f"--set changes entries of a policy file, and {why}", "leave out --set")


class LedgerCommand(Command):
    """Use the ledger of a policy, POLICY, or of --ledger and --id-key; `named_ledger` returns it.

    POLICY is the last argument, or the first if the command's own argument is optional; a file *.toml is POLICY in any
    place. If --ledger is given as well, the text is that own argument. A command that reads no id declares --ledger by
    itself, and has no --id-key.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        arguments = [item for item in self.params if isinstance(item, TyperArgument)]  # they come first
        self._arguments = {str(item.name): item.required for item in arguments}
        self._own = [item.name for item in self.params]
        if "ledger" in self._own:
            self.params[self._own.index("ledger")].required = False
        else:
            self.params.insert(len(arguments), _shared()["ledger"])
            self.params.insert(-1, _shared()["id_key"])
        place = [*self._arguments.values(), False].index(False)  # before the first optional one
        self.params.insert(place, _shared()["policy"])

    def invoke(self, ctx: Any) -> Any:
        values = ctx.params
        policy = values["policy"] and Path(values["policy"])
        for name in self._arguments:  # in the other order
            own = values[name]
            if policy is not None and policy.suffix != ".toml" and str(own).endswith(".toml"):
                values[name], policy = type(own)(str(policy)), Path(own)
        if values["ledger"] is None:
            policy = policy or values.get("release_of")
        if policy is not None and values["ledger"] is not None:
            free = [name for name, required in self._arguments.items() if not required and values[name] is None]
            if not free:
                raise UsageError("POLICY and --ledger are both given", "give one of them")
            values[free[0]], policy = policy, None
        if policy is not None:
            loaded = load_policy(policy)
            spec, terminal.call()[STORE] = loaded.ledger, loaded.storage_options
            values["ledger"] = spec.url
            for name in {"id_key", "anchors"} & values.keys():
                values[name] = values[name] or getattr(spec, name)
        if values["ledger"] is None:
            raise UsageError("no ledger is named", "give POLICY, whose ledger it is, or --ledger URL")
        terminal.call()[_LEDGER] = values["ledger"], values.get("id_key")
        ctx.params = {name: value for name, value in values.items() if name in self._own}
        return super().invoke(ctx)


def named_ledger() -> tuple[str, str | None]:
    """Return the URL of the command's ledger, and the reference to the key of its ids."""
    url, id_key = terminal.call()[_LEDGER]
    return url, id_key


def require_confirmation(question: str, *, yes: bool) -> None:
    if yes:
        return
    typer.echo(f"{question} [y/N]: ", err=True, nl=False)  # typer.confirm writes to the standard output, too
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise PolicyError("this was not confirmed; nothing was changed", "answer y, or give --yes in a script")


def parse_parameters(kind: type[BaseModel], name: str, assignments: Sequence[str] | None) -> dict[str, Any]:
    """Read options `-p name=value` by the types of a mechanism's fields, as plain data; a list is written `a,b,c`."""
    texts = name_values(assignments)
    for parameter in texts:
        if parameter not in kind.model_fields:
            hint = f"{suggestion(parameter, kind.model_fields)} {_allowed(kind, name)}".strip()
            raise PolicyError(f"{name} has no parameter {parameter!r}", hint)
    return {parameter: _typed(kind, name, parameter, text) for parameter, text in texts.items()}


def name_values(
    assignments: Sequence[str] | None,
    problem: str = "a parameter is written NAME=VALUE",
    hint: str = "for example -p epsilon=2",
) -> dict[str, str]:
    values: dict[str, str] = {}
    for assignment in assignments or ():
        name, equals, text = assignment.partition("=")
        name = name.strip()
        if not equals or not name:
            raise PolicyError(problem, hint)
        if name in values:
            raise PolicyError(f"{name} is given twice", "give it once")
        values[name] = text
    return values


def _allowed(kind: type[BaseModel], name: str) -> str:
    return f"parameters of {name}: " + ", ".join(
        f"{parameter} ({type_name(field.annotation)})" for parameter, field in kind.model_fields.items()
    )


def _typed(kind: type[BaseModel], name: str, parameter: str, text: str) -> Any:
    from pydantic import TypeAdapter, ValidationError

    lists = (list, tuple, set, frozenset)
    annotation: Any = kind.model_fields[parameter].annotation
    if text.startswith("{"):  # a table as a policy writes it, or as JSON; the mechanism checks its entries
        for read in (json.loads, lambda entry: tomllib.loads(f"entry = {entry}")["entry"]):
            with suppress(ValueError):
                return read(text)
        hint = "write it as in a policy: {first = 1, second = [2, 3]}"
        raise PolicyError(f"{name}: {parameter}: cannot be read", hint)
    for inner in get_args(annotation) if "," in text else ():
        if get_origin(inner) in lists:  # a range or the path of one, for instance
            with suppress(ValidationError):
                return TypeAdapter[Any](inner).validate_python(text.split(","))
    try:
        adapter = TypeAdapter[Any](annotation)
        if get_origin(annotation) in lists:
            return adapter.validate_python(text.split(",") if text else [])
        return adapter.validate_strings(text)
    except ValidationError as exc:
        problems = exc.errors(include_input=False, include_url=False)
    from dptext_etl.parameters import by_entry

    *_, (_, problem) = by_entry(problems)
    raise PolicyError(f"{name}: {parameter}: {problem}", _allowed(kind, name))


class _NoPandas:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:  # noqa: ARG004
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def skip_pandas() -> None:
    """Let pyarrow conclude that this process has no pandas objects; `to_pandas` still works.

    pyarrow imports pandas with its first array, which needs half a second.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(_NoPandas)
