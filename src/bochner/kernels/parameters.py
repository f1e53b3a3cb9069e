"""Numbers of a nested value by path, and replacement.

``left__lengthscale`` is the field ``lengthscale`` of the field ``left``: the paths of
scikit-learn's ``get_params``, for values that never change.
"""

from dataclasses import fields, is_dataclass
from dataclasses import replace as replace_fields
from typing import Any, TypeVar

from bochner.errors import InvalidInput

Value = TypeVar("Value")


def get_params(value: Any, deep: bool = True) -> dict[str, Any]:
    """Return the fields of a dataclass by name; with ``deep`` also those of its parts, by path."""
    params = {f.name: getattr(value, f.name) for f in fields(value)}
    if deep:
        for name, part in tuple(params.items()):
            if is_dataclass(part):
                params |= {f"{name}__{path}": v for path, v in get_params(part).items()}
    return params


def replace(value: Value, changes: dict[str, Any]) -> Value:
    """Return ``value`` with the fields at these paths replaced; ``value`` itself stays as it is.

    Whole parts are replaced first, then the fields within them.
    """
    _require_known(value, changes)
    whole = {path: new for path, new in changes.items() if "__" not in path}
    result: Any = replace_fields(value, **whole) if whole else value  # type: ignore[type-var]
    for name in dict.fromkeys(path.split("__")[0] for path in changes if "__" in path):
        within = {p[len(name) + 2 :]: v for p, v in changes.items() if p.startswith(f"{name}__")}
        result = replace_fields(result, **{name: replace(getattr(result, name), within)})
    return result


def _require_known(value: Any, changes: dict[str, Any]) -> None:
    """Refuse paths whose first name is no field, or that go into a field without fields."""
    params = get_params(value, deep=False)
    for path in changes:
        name, _, rest = path.partition("__")
        new = changes.get(name, params.get(name))
        if name not in params or (rest and not is_dataclass(new)):
            known = ", ".join(get_params(value)) or "none: it has no parameters"
            raise InvalidInput(
                f"{type(value).__name__} has no parameter {path!r}; its parameters are: {known}."
            )
