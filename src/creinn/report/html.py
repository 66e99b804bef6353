"""Pieces of a page: text that is escaped, and markup that is trusted."""

from html import escape


class Html(str):
    """Markup that goes into a page as it is; a plain ``str`` is text and gets escaped.

    Example:
        >>> markup("a < b"), markup(Html("<b>a</b>"))
        ('a &lt; b', '<b>a</b>')
    """

    __slots__ = ()


def markup(text: str) -> Html:
    """Trusted markup as it is, any other text escaped."""
    return text if isinstance(text, Html) else Html(escape(text))
