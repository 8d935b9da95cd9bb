"""Teach mypy the attribute `.dptext` on expressions and frames of Polars.

Polars registers namespaces while a program runs, so no type checker can see them, and none lets a library declare an
attribute of another library's class. Put this plugin into the settings of mypy:

    [tool.mypy]
    plugins = ["dptext_etl.polars_mypy"]

`pl.col("review").dptext` is then an `ExprNamespace`, in every module that is checked together with one that imports
`dptext_etl.polars`; without such an import the attribute is an error, as it is when the program runs. Other type
checkers see the same methods on `dptext_etl.polars.ExprNamespace(pl.col("review"))`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy.nodes import MDEF, SymbolTableNode, TypeInfo, Var
from mypy.plugin import Plugin
from mypy.types import AnyType, Instance, TypeOfAny

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy.plugin import AttributeContext, ClassDefContext
    from mypy.types import Type

ATTRIBUTE = "dptext"
DOOR = "dptext_etl.polars"
NAMESPACES = {
    "polars.expr.expr.Expr": "ExprNamespace",
    "polars.dataframe.frame.DataFrame": "DataFrameNamespace",
    "polars.lazyframe.frame.LazyFrame": "LazyFrameNamespace",
}
"""Classes of Polars, and the namespace that `dptext_etl.polars` registers on each."""


class PolarsNamespaces(Plugin):
    """Declare the attribute of the three classes, and its type if the program imports `dptext_etl.polars`."""

    def get_customize_class_mro_hook(self, fullname: str) -> Callable[[ClassDefContext], None] | None:
        """Declare the attribute when mypy reads one of the classes."""
        return _declare if fullname in NAMESPACES else None

    def get_attribute_hook(self, fullname: str) -> Callable[[AttributeContext], Type] | None:
        """Return the type of the attribute where a program uses it."""
        owner, _, name = fullname.rpartition(".")
        if name != ATTRIBUTE or owner not in NAMESPACES:
            return None
        return lambda context: self._namespace(context, NAMESPACES[owner])

    def _namespace(self, context: AttributeContext, name: str) -> Type:
        door = (self._modules or {}).get(DOOR)
        found = door.names.get(name) if door is not None else None
        if found is None or not isinstance(found.node, TypeInfo):
            context.api.fail(f'"{ATTRIBUTE}" is registered by {DOOR}: import it', context.context)
            return AnyType(TypeOfAny.from_error)
        return Instance(found.node, [])


def _declare(context: ClassDefContext) -> None:
    info = context.cls.info
    attribute = Var(ATTRIBUTE, AnyType(TypeOfAny.special_form))
    attribute.info, attribute.is_property, attribute.is_ready = info, True, True
    attribute._fullname = f"{info.fullname}.{ATTRIBUTE}"  # noqa: SLF001  (mypy's own plugins do)
    info.names[ATTRIBUTE] = SymbolTableNode(MDEF, attribute, plugin_generated=True)


def plugin(version: str) -> type[Plugin]:  # noqa: ARG001
    """Return the plugin class to mypy."""
    return PolarsNamespaces
