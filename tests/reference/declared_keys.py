"""Writes zoo/huggingface/declared_keys.json: the keys of `config.json` that the Transformers library knows, by family.

A key counts as known where a configuration class of this `model_type` declares it, or where the code of the model reads
it. Their sources are searched; nothing of the library is imported. Keys that the file has stay in it, because files of
earlier versions of the library have them.

    python -P tests/reference/declared_keys.py [FOLDER ...]

Each folder is that of the package `transformers` of one version. Without one it is that of the installed package. Made
with the versions 4.6.1, 4.20.1, 4.40.2, 4.57.1 and 5.24.0.
"""

import ast
import importlib.util
import json
import re
import sys
from pathlib import Path

FILE = Path(__file__).parents[2] / "zoo" / "huggingface" / "declared_keys.json"
# what all configurations share: the base class, and the rotary positions
COMMON = ("configuration_utils.py", "modeling_rope_utils.py")
_READ = re.compile(
    r"""config\.(\w+)|getattr\((?:self\.)?config,\s*["'](\w+)|kwargs(?:\.pop|\.get|\.setdefault)\(\s*["'](\w+)"""
    r"""|["'](\w+)["']\s+(?:not\s+)?in\s+kwargs"""
)


def declared(source: str) -> set[str]:
    """Keys that the classes of a file declare: annotated attributes, arguments, and other names of these."""
    keys = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef) or not re.search("Config|Mixin", node.name):
            continue
        for part in node.body:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                keys.add(part.target.id)
            elif isinstance(part, ast.FunctionDef) and part.name == "__init__":
                keys |= {argument.arg for argument in [*part.args.args, *part.args.kwonlyargs]} - {"self"}
            if isinstance(part, ast.FunctionDef):  # what it makes of others is written too
                keys |= {
                    node.attr
                    for node in ast.walk(part)
                    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
                }
            elif isinstance(part, ast.Assign) and getattr(part.targets[0], "id", "") == "attribute_map":
                if isinstance(part.value, ast.Dict):
                    keys |= {ast.literal_eval(name) for name in [*part.value.keys, *part.value.values]}
    return keys


def read(source: str) -> set[str]:
    """Keys that the code of a file reads from a configuration."""
    return {name for match in _READ.finditer(source) for name in match.groups() if name}


def of_version(package: Path, families: list[str]) -> dict[str, set[str]]:
    """Known keys by `model_type`, those of all types by ""."""
    found: dict[str, set[str]] = {"": set()}
    for name in COMMON:
        if (package / name).is_file():
            source = (package / name).read_text("utf-8")
            found[""] |= declared(source) | {key for key in read(source) if not key.startswith("to_")}
    for path in sorted((package / "models").glob("*/configuration_*.py")):
        source = path.read_text("utf-8")
        types = set(re.findall(r"""^    model_type\s*=\s*["']([\w-]+)["']""", source, re.M)) & set(families)
        if types:
            keys = declared(source) | read(source)
            for other in path.parent.glob("modeling_*.py"):
                if not other.name.startswith(("modeling_tf_", "modeling_flax_")):
                    keys |= read(other.read_text("utf-8"))
            for model_type in types:
                found[model_type] = found.get(model_type, set()) | keys
    return found


def main(folders: list[str]) -> None:
    sys.path.insert(0, str(FILE.parents[2]))
    from zoo.huggingface.family import all_families

    families = [family.model_type for family in all_families()]
    keys = {name: set(names) for name, names in json.loads(FILE.read_text()).items()} if FILE.is_file() else {}
    if not folders:
        sys.path.remove(str(FILE.parents[2]))
        folders = [importlib.util.find_spec("transformers").submodule_search_locations[0]]
    for folder in folders:
        for name, names in of_version(Path(folder), families).items():
            keys[name] = keys.get(name, set()) | names
    content = {name: " ".join(sorted(keys[name] - keys[""] if name else keys[name])) for name in sorted(keys)}
    FILE.write_text(json.dumps({name: names.split() for name, names in content.items()}, indent=None) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
