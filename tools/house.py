"""Measures of the house: lines, modules, the longest chain of imports, modules that import each other.

python tools/house.py --check fails if one is beyond its limit. Imports for type checking alone do not count; a
package's ``__init__`` is a module.
"""

import functools
import sys
from collections import Counter
from pathlib import Path

import grimp
import numpy as np
from scipy.sparse.csgraph import connected_components

SOURCE = Path(__file__).parents[1] / "src" / "creinn"
LONGEST_FILE = 400
LIMITS = {"lines": 16_000, "modules": 110, "root": 7, "depth": 14, "long files": 0, "cycles": 0}


def chain_and_cycles() -> tuple[list[str], list[list[str]]]:
    """The longest chain of imports, importer first, and groups of modules that import each other, on whatever way."""
    sys.path.insert(0, str(SOURCE.parent))  # this tree, not one that is installed
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
        """The longest one down from a group, which counts once."""
        lower = set(group_of[imports[group_of == group].any(0)]) - {group}
        return [members[group][0], *max(map(chain, sorted(lower)), key=len, default=[])]

    return max(map(chain, range(count)), key=len), [found for found in members if len(found) > 1]


def main() -> int:
    """Print the measures."""
    files = {
        path.relative_to(SOURCE): len(path.read_bytes().splitlines())
        for path in sorted(SOURCE.rglob("*.py"))
    }
    lines, modules = Counter(), Counter()
    for path, count in files.items():
        package = path.parts[0] if len(path.parts) > 1 else "root"
        lines[package] += count
        modules[package] += 1
    chain, cycles = chain_and_cycles()
    long = {path: count for path, count in files.items() if count > LONGEST_FILE}

    for package in modules:
        print(f"{package:12} {lines[package]:6} lines {modules[package]:4} modules")
    print("\nlongest chain:", " > ".join(name.removeprefix("creinn.") for name in chain))
    print(*(f"{count} lines: {path}" for path, count in long.items()), sep="\n")
    print(*(f"import each other: {', '.join(group)}" for group in cycles), sep="\n", end="\n\n")
    found = (lines.total(), modules.total(), modules["root"], len(chain), len(long), len(cycles))
    measures = dict(zip(LIMITS, found, strict=True))
    for name, value in measures.items():
        print(f"{name:12} {value:6} {'>' if value > LIMITS[name] else '<='} {LIMITS[name]}")
    return int(
        "--check" in sys.argv[1:] and any(value > LIMITS[name] for name, value in measures.items())
    )


if __name__ == "__main__":
    sys.exit(main())
