"""Test the package on several Python versions with the newest and the lowest dependencies.

uv creates an environment for each row, with a wheel of the package and its extras. The script runs
the tests of the
mathematics, the estimator, the command line and the extras, or those of ``--tests``. After each
environment, the
installed versions and the results are written as JSON. Missing interpreters and failed
installations are recorded too.

    make matrix                               # or: python tools/matrix.py --python 3.12
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
RESOLUTIONS = {"highest": "newest", "lowest-direct": "lowest declared"}
EXTRAS = ("report", "images", "parquet", "onnx")
TOOLS = ("pytest>=8", "pytest-xdist", "pytest-timeout", "hypothesis", "beartype", "python-flint")
TESTS = (
    "tests/credal",
    "tests/evaluation",
    "tests/test_interval.py",
    "tests/nn/test_layers.py",
    "tests/classifier/test_creinn.py",
    "tests/sklearn/test_estimator.py",
    "tests/cli/test_predict.py",
    "tests/data/test_reading_parquet.py",
    "tests/data/test_images.py",
    "tests/report/test_page.py",
    "tests/graph/test_export.py::test_onnxruntime",
)
NAMED = (
    *(
        "torch",
        "numpy",
        "scipy",
        "scikit-learn",
        "pandas",
        "safetensors",
        "joblib",
        "filelock",
        "jsonargparse",
    ),
    *(
        "pyyaml",
        "jaxtyping",
        "tqdm",
        "plotly",
        "jinja2",
        "pillow",
        "pyarrow",
        "onnx",
        "onnxruntime",
        "onnxscript",
    ),
)


def run(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command and capture its output."""
    return subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False
    )


def last_lines(found: subprocess.CompletedProcess[str], count: int = 5) -> str:
    """Return the last lines of an output without colours."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", f"{found.stdout}\n{found.stderr}").strip()
    return "\n".join(text.splitlines()[-count:])


def try_one(
    uv: str, root: Path, folder: Path, python: str, resolution: str, tests: list[str]
) -> dict[str, Any]:
    """Create an environment and run the tests in it."""
    environment = folder / f"{python}-{resolution}"
    inside = environment / "bin" / "python"
    row: dict[str, Any] = {"python": python, "dependencies": RESOLUTIONS[resolution]}
    shutil.rmtree(environment, ignore_errors=True)
    made = run(uv, "venv", "--quiet", "--python", python, environment)
    if made.returncode:
        return {**row, "result": "no such Python here", "said": last_lines(made)}
    built = run(
        uv,
        "build",
        "--quiet",
        "--wheel",
        "--python",
        inside,
        "--out-dir",
        environment / "dist",
        root,
    )
    if built.returncode:
        return {**row, "result": "not built", "said": last_lines(built)}
    (wheel,) = (environment / "dist").glob("*.whl")
    install = (uv, "pip", "install", "--quiet", "--only-binary", ":all:", "--python", inside)
    extras = [part for extra in EXTRAS for part in ("--extra", extra)]
    declared = ("--resolution", resolution, "--requirement", root / "pyproject.toml", *extras)
    for step in (declared, ("--no-deps", wheel), TOOLS):
        found = run(*install, *step)
        if found.returncode:
            return {**row, "result": "not installed", "said": last_lines(found)}
    listed = json.loads(
        run(uv, "pip", "list", "--quiet", "--format", "json", "--python", inside).stdout
    )
    versions = {entry["name"]: entry["version"] for entry in listed}
    row["versions"] = {name: versions.get(name) for name in NAMED}
    tested = run(inside, "-m", "pytest", "-n", "2", "-W", "default", *tests, cwd=root)
    summary = last_lines(tested, 1)
    failed = sorted(set(re.findall(r"^(?:FAILED|ERROR) (\S+)", tested.stdout, re.MULTILINE)))
    row |= {"result": "passed" if tested.returncode == 0 else "failed", "said": summary}
    return {**row, "failed": failed} if failed else row


def main() -> None:
    """Run all rows in order."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", nargs="+", default=list(PYTHONS))
    parser.add_argument("--resolution", nargs="+", choices=RESOLUTIONS, default=list(RESOLUTIONS))
    parser.add_argument("--tests", nargs="+", default=list(TESTS))
    parser.add_argument(
        "--folder", type=Path, default=Path("build/matrix"), help="where environments are made"
    )
    parser.add_argument("--to", type=Path, default=Path("results/matrix.json"))
    options = parser.parse_args()
    root = Path(__file__).resolve().parents[1]
    uv = shutil.which("uv", path=Path(sys.executable).parent) or "uv"
    record = json.loads(options.to.read_text()) if options.to.exists() else {"rows": []}
    record |= {"command": "make matrix", "tests": options.tests}
    for python in options.python:
        for resolution in options.resolution:
            row = try_one(uv, root, options.folder.resolve(), python, resolution, options.tests)
            row["commit"] = run("git", "rev-parse", "HEAD", cwd=root).stdout.strip()
            key = (row["python"], row["dependencies"])
            others = [
                other for other in record["rows"] if (other["python"], other["dependencies"]) != key
            ]
            record["rows"] = sorted(
                [*others, row], key=lambda one: (one["python"], one["dependencies"])
            )
            options.to.parent.mkdir(parents=True, exist_ok=True)
            temporary = options.to.with_suffix(".tmp")
            temporary.write_text(json.dumps(record, indent=2) + "\n")
            temporary.replace(options.to)
            print(
                f"Python {python}, {RESOLUTIONS[resolution]} dependencies: {row['result']}. {row['said']}",
                flush=True,
            )


if __name__ == "__main__":
    main()
