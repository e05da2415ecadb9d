"""Only `internals` goes beyond Spark's public interface, and each of its modules says where."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

PIPELINE = Path(__file__).parents[4] / "src" / "lavant" / "pipeline"
INTERNALS = PIPELINE / "internals"
MODULES = sorted(PIPELINE.rglob("*.py"))

PUBLIC = re.compile(r"pyspark(\.(errors|ml|pandas|resource|testing|sql(\.(\w+))?|sql\.streaming\.\w+))?")
UNDOCUMENTED = {"connect", "pandas", "utils", "worker", "internal", "conversion"}
"""Packages below `pyspark.sql` that are no part of its reference."""
DOCUMENTED = {"_replace", "_asdict", "_fields", "_make", "_exit"}
"""Of named tuples and of `os`."""


def private_uses(source: str) -> list[str]:
    """What a module uses of others that is private: attributes, modules of Spark, Py4J, names of Scala's classes."""
    tree = ast.parse(source)
    return sorted({*_modules(tree), *_attributes(tree), *_class_names(tree)})


def _modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if not _is_public(alias.name))
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            if not _is_public(node.module):
                yield node.module
            elif node.module == "pyspark":
                names = (alias.name for alias in node.names)
                yield from (
                    f"pyspark.{n}" for n in names if n not in pyspark.__all__ and not _is_public(f"pyspark.{n}")
                )


def _is_public(module: str) -> bool:
    package = module.partition(".")[0]
    if package != "pyspark":
        return package != "py4j"
    found = PUBLIC.fullmatch(module)
    return found is not None and found[4] not in UNDOCUMENTED


def _attributes(tree: ast.AST) -> Iterator[str]:
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_self(node.value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not _is_self(node.value):
            name = node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr", "hasattr"):
            name = str(node.args[1].value) if isinstance(node.args[1], ast.Constant) else ""
        else:
            continue
        if re.match("_[^_]", name) and (name.startswith("_j") or name not in own) and name not in DOCUMENTED:
            yield name


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _class_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"^org\.apache\.spark\.\w[\w.]*", node.value)


def test_no_other_module_of_the_pipeline_uses_anything_private() -> None:
    found = {
        str(path.relative_to(PIPELINE)): uses
        for path in MODULES
        if INTERNALS not in path.parents and (uses := private_uses(path.read_text()))
    }
    assert found == {}


@pytest.mark.parametrize("path", sorted(INTERNALS.glob("*.py")), ids=lambda path: path.stem)
def test_a_module_of_the_internals_names_its_private_calls_and_the_versions(path: Path) -> None:
    said = ast.get_docstring(ast.parse(path.read_text())) or ""
    uses = private_uses(path.read_text())
    assert [use for use in uses if f"`{use}" not in said and f".{use}`" not in said] == []
    assert not uses or "Known on PySpark 4.2 and 4.3" in said


@pytest.mark.parametrize(
    ("source", "use"),
    [
        ("spark._jsc.sc()", "_jsc"),
        ("spark.sparkContext._gateway.proc", "_gateway"),
        ("self.spark._jvm", "_jvm"),
        ("class A:\n def f(self):\n  self._jdf = 1\n  x._jdf", "_jdf"),
        ("getattr(frame, '_jdf')", "_jdf"),
        ("import pyspark.worker", "pyspark.worker"),
        ("from pyspark import daemon", "pyspark.daemon"),
        ("from pyspark.serializers import NoOpSerializer", "pyspark.serializers"),
        ("from pyspark.core.rdd import RDD", "pyspark.core.rdd"),
        ("from pyspark.sql.connect.dataframe import DataFrame", "pyspark.sql.connect.dataframe"),
        ("from pyspark.sql.pandas import types", "pyspark.sql.pandas"),
        ("from py4j.protocol import Py4JError", "py4j.protocol"),
        ("name = 'org.apache.spark.sql.execution.Secret'", "org.apache.spark.sql.execution.Secret"),
    ],
)
def test_what_is_private_is_found(source: str, use: str) -> None:
    assert use in private_uses(source)


@pytest.mark.parametrize(
    "source",
    [
        "from pyspark import RDD, SparkContext, TaskContext",
        "from pyspark.sql import DataFrame, functions",
        "from pyspark.sql.streaming.datasource import ReadMaxRows",
        "from pyspark.sql.types import StructType",
        "from pyspark.errors import PySparkException",
        "class A:\n def _f(self):\n  self._x = 1\n def g(self, other):\n  other._f(other._x)",
        "row._replace(a=1)",
        "__version__ = pyspark.__version__",
    ],
)
def test_what_is_documented_is_not(source: str) -> None:
    assert private_uses(source) == []
