"""Counts the lines of each family of models, here and in KerasHub.

python docs/count_family_lines.py
"""

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# folders of KerasHub's models that are not called as the family
KERAS_HUB = {
    **{"xlm-roberta": "xlm_roberta", "distilbert": "distil_bert", "deberta-v2": "deberta_v3", "gpt_neox": "gpt_neo_x"},
    **{"gemma2": "gemma", "gemma3_text": "gemma3", "qwen2": "qwen", "qwen2_moe": "qwen_moe"},
}


def count_lines(*paths: Path) -> int:
    """Returns the number of lines of files, empty ones and comments included."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def files() -> dict[Path, list[str]]:
    """Returns the families of each file of ours."""
    from zoo.huggingface.family import all_families

    found: dict[Path, list[str]] = {}
    # a family may be registered from elsewhere
    for family in (family for family in all_families() if family.read.__module__.startswith("zoo.")):
        path = ROOT / f"{family.read.__module__.replace('.', '/')}.py"
        found.setdefault(path, []).append(family.model_type)
    return dict(sorted(found.items()))


def in_keras_hub(name: str) -> Path | None:
    """Returns the folder of a family in KerasHub; None where it has none."""
    folder = Path(importlib.util.find_spec("keras_hub").origin).parent / "src" / "models" / KERAS_HUB.get(name, name)
    return folder if folder.is_dir() else None


def as_table(header: list[str], rows: list[list[str]]) -> str:
    """Returns a table in Markdown."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows))


def counted() -> dict[str, str]:
    """Returns the table of the lines as "lines", and sums of them."""
    rows, ours = [], files()
    for path, names in ours.items():
        folders = sorted({in_keras_hub(name) for name in names} - {None})
        theirs = ", ".join(f"{folder.name} {count_lines(*folder.glob('*.py')):,}" for folder in folders)
        shown = ", ".join(f"`{name}`" for name in names)
        rows.append([shown, f"`{path.name}`", f"{count_lines(path):,}", theirs or "none"])
    shared = {*(ROOT / "zoo" / "huggingface").rglob("*.py"), *(ROOT / "layers").rglob("*.py")} - set(ours)
    return {
        "lines": as_table(["families", "file", "lines", "lines in KerasHub"], rows),
        "total": f"{count_lines(*ours):,}",
        "shared": f"{count_lines(*shared):,}",
        "version": importlib.metadata.version("keras-hub"),
    }


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    print(counted()["lines"])
