"""What `module:name` names, found on Python's path."""

from __future__ import annotations

import importlib
from typing import Any

from redrive.model.errors import BadSettings


def imported(name: str, *, what: str) -> Any:
    """The function or type of this name; a clear sentence when there is none. `what` says how such a name looks."""
    module, _, path = name.partition(":")
    if not module or not path:
        raise BadSettings(f"'{name}' {what}")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise BadSettings(f"cannot import '{module}': {error}; is it on the path (PYTHONPATH)?") from error
    except (Exception, SystemExit) as error:  # one that ends its process when it is imported ends nothing else
        raise BadSettings(f"cannot import '{module}': {type(error).__name__}: {error}") from error
    for step in path.split("."):
        if not hasattr(found, step):
            raise BadSettings(f"'{module}' has no '{path}'")
        found = getattr(found, step)
    if not callable(found):
        raise BadSettings(f"'{name}' is a {type(found).__name__}, and cannot be called")
    return found
