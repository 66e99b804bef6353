"""Measure the size and the structure of the package.

``python tools/house.py`` prints the measures and the offenders. With ``--check`` it returns exit
code 1 if a measure exceeds its limit. The length of a function includes its docstring. Imports for
type checking do not count as dependencies.
"""

import ast
import functools
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import grimp
import numpy as np
from scipy.sparse.csgraph import connected_components

SOURCE = Path(__file__).parents[1] / "src" / "creinn"
COLUMNS = 100
MODULE_LINES, FUNCTION_LINES = 400, 60
PARAMETERS = 8
EXCEPTIONS = {"CreINNClassifier": 14}  # the parameters of the scikit-learn estimator
LAZY = Path("__init__.py")  # the lazy names of the package

LIMITS = {
    "lines": 20_900,
    "characters per line": 50.0,
    "modules": 125,
    "import depth": 13,
    "wide lines": 0,
    "long modules": 0,
    "long functions": 0,
    "many parameters": 0,
    "import cycles": 0,
    "imports by string": 0,
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Yield all functions and methods with their qualified names."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | Function):
            name = f"{prefix}{node.name}"
            if isinstance(node, Function):
                yield name, node
            yield from functions(node, f"{name}.")
        else:
            yield from functions(node, prefix)


def long_functions(tree: ast.AST) -> dict[str, int]:
    """Return the number of lines of the functions that are too long."""
    sizes = {name: (node.end_lineno or 0) - node.lineno + 1 for name, node in functions(tree)}
    return {name: size for name, size in sizes.items() if size > FUNCTION_LINES}


def many_parameters(tree: ast.AST) -> dict[str, int]:
    """Return the number of parameters of the public calls that have too many.

    A name is public if no part of it starts with an underscore, except for ``__init__``. A
    dataclass counts only if it is one of the exceptions, because other dataclasses are records.
    """
    counts = {}
    for name, node in functions(tree):
        parts = name.split(".")
        if any(part.startswith("_") and part != "__init__" for part in parts):
            continue
        arguments = node.args
        names = [a.arg for a in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]
        count = len(names) - (len(parts) > 1 and names[:1] in (["self"], ["cls"]))
        counts[name] = count
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name in EXCEPTIONS:
            fields = [s for s in node.body if isinstance(s, ast.AnnAssign)]
            count = sum(not ast.unparse(s.annotation).startswith("ClassVar") for s in fields)
            counts.setdefault(f"{node.name}.__init__", count)
    return {
        name: count
        for name, count in counts.items()
        if count > EXCEPTIONS.get(name.removesuffix(".__init__"), PARAMETERS)
    }


def chain_and_cycles() -> tuple[list[str], list[list[str]]]:
    """Return the longest chain of imports, and the groups of modules that import each other."""
    sys.path.insert(0, str(SOURCE.parent))  # this source tree instead of an installed package
    graph = grimp.build_graph("creinn", exclude_type_checking_imports=True, cache_dir=None)
    names = sorted(graph.modules)
    imports = np.array(
        [np.isin(names, list(graph.find_modules_directly_imported_by(name))) for name in names]
    )
    count, group_of = connected_components(imports, connection="strong")
    members = [
        [name for name, group in zip(names, group_of, strict=True) if group == one]
        for one in range(count)
    ]

    @functools.cache
    def chain(group: int) -> list[str]:
        """Return the longest chain that starts at a group."""
        lower = set(group_of[imports[group_of == group].any(0)]) - {group}
        return [members[group][0], *max(map(chain, sorted(lower)), key=len, default=[])]

    return max(map(chain, range(count)), key=len), [found for found in members if len(found) > 1]


def measure(files: Mapping[Path, str]) -> tuple[dict[str, float], dict[str, list[str]]]:
    """Return the measures of the sources, and the offenders of each measure."""
    offenders: dict[str, list[str]] = {name: [] for name in LIMITS}
    filled = [line for text in files.values() for line in text.splitlines() if line.strip()]
    for path, text in files.items():
        lines, tree = text.splitlines(), ast.parse(text)
        if len(lines) > MODULE_LINES:
            offenders["long modules"].append(f"{path}: {len(lines)} lines")
        if wide := sum(len(line) > COLUMNS for line in lines):
            offenders["wide lines"].append(f"{path}: {wide} lines")
        for number, line in enumerate(lines, 1):
            if path != LAZY and ("import_module" in line or "__import__" in line):
                offenders["imports by string"].append(f"{path}:{number}: {line.strip()}")
        for name, size in long_functions(tree).items():
            offenders["long functions"].append(f"{path}: {name} has {size} lines")
        for name, count in many_parameters(tree).items():
            offenders["many parameters"].append(f"{path}: {name} has {count} parameters")
    chain, cycles = chain_and_cycles()
    offenders["import cycles"] = [", ".join(group) for group in cycles]
    offenders["import depth"] = [" > ".join(name.removeprefix("creinn.") for name in chain)]
    measures = {name: float(len(found)) for name, found in offenders.items()}
    measures |= {
        "lines": sum(len(text.splitlines()) for text in files.values()),
        "characters per line": sum(map(len, filled)) / len(filled),
        "modules": len(files),
        "import depth": len(chain),
    }
    return measures, offenders


def main() -> int:
    """Print the measures and return the exit code."""
    files = {
        path.relative_to(SOURCE): path.read_text(encoding="utf-8")
        for path in sorted(SOURCE.rglob("*.py"))
    }
    lines, modules = Counter[str](), Counter[str]()
    for path, text in files.items():
        package = path.parts[0] if len(path.parts) > 1 else "root"
        lines[package] += len(text.splitlines())
        modules[package] += 1
    for package in modules:
        print(f"{package:12} {lines[package]:6} lines {modules[package]:4} modules")
    measures, offenders = measure(files)
    for name, found in offenders.items():
        if found:
            print(f"\n{name}:", *found, sep="\n  ")
    print()
    for name, value in measures.items():
        sign = ">" if value > LIMITS[name] else "<="
        print(f"{name:20} {value:8g} {sign:2} {LIMITS[name]:g}")
    failed = any(value > LIMITS[name] for name, value in measures.items())
    return int("--check" in sys.argv[1:] and failed)


if __name__ == "__main__":
    sys.exit(main())
