"""Policies as TOML files, for tests that start commands."""

import json
from pathlib import Path


def write_policy(path, values):
    """Write a policy's values as a file, tables in one line each, and return its path."""
    Path(path).write_text("".join(f"{name} = {toml(value)}\n" for name, value in values.items() if value is not None))
    return Path(path)


def toml(value):
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {toml(item)}' for name, item in value.items())} }}"
    return f"[{', '.join(map(toml, value))}]" if isinstance(value, list | tuple) else json.dumps(value)
