"""Lists the recipes: `python -m recipes`."""

import ast
from pathlib import Path


def recipes() -> dict[str, str]:
    """Returns the first line of what each recipe says of itself, by name, without importing any."""
    folder = Path(__file__).parent
    files = [path for path in folder.glob("*.py") if not path.name.startswith("__")]
    packages = [path for path in folder.glob("*/__main__.py")]
    lines = {}
    for path in (*files, *packages):
        name = path.stem if path in files else path.parent.name
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        lines[name] = docstring.partition("\n")[0]
    return dict(sorted(lines.items()))


if __name__ == "__main__":
    print("python -m recipes.<name> --help\n")
    for name, line in recipes().items():
        print(f"  {name:20s} {line}")
