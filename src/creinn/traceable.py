"""Functions that torch.fx records as one node of a graph."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

from torch import fx


def traceable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make ``function`` record one node when an argument is a ``torch.fx.Proxy``.

    Unlike ``torch.fx.wrap``, this needs no patch of the module that defines the function, so other
    threads are not affected while a network is traced.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        proxy = _find_proxy((*args, *kwargs.values()))
        if proxy is None:
            return function(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", wrapper, args, kwargs)

    return wrapper


def _find_proxy(values: Iterable[Any]) -> fx.Proxy | None:
    for value in values:
        if isinstance(value, fx.Proxy):
            return value
        if isinstance(value, list | tuple) and (found := _find_proxy(value)) is not None:
            return found
    return None
