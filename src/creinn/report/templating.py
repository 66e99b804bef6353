"""Templates of pages and of what they say: jinja2, text escaped, :class:`markupsafe.Markup` trusted."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

_TEMPLATES = Environment(
    loader=PackageLoader("creinn.report"),
    autoescape=select_autoescape(["html"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(template: str, **values: Any) -> Markup:
    """Markup of an HTML template."""
    return Markup(_TEMPLATES.get_template(template).render(values))


def texts(template: str, **values: Any) -> dict[str, str]:
    """The texts that a template sets, by name, each in one line."""
    module = _TEMPLATES.get_template(template).make_module(values)
    return {name: " ".join(str(text).split()) for name, text in vars(module).items() if not name.startswith("_")}
