"""Lists the models of the Transformers library that this project does not read, the most used first.

Run it where `transformers` is installed, with access to the Hugging Face Hub, whose downloads of the last month it sums
over the hundred most loaded models of each family:

    python docs/missing_families.py
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

PAGE = Path(__file__).with_name("families.md")
# what the models of the tasks here are in the library's table of classes
HEADS = ("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SEQUENCE_CLASSIFICATION")
MODELS_OF_A_FAMILY = 100


def read_families(page: str) -> set[str]:
    """Returns the families in the table of the page."""
    return set(re.findall(r"^\| `([^`]+)` \| yes ", page, re.MULTILINE))


def of_text() -> set[str]:
    """Returns the `model_type` of all models of the library that have a head for texts."""
    from transformers.models.auto import modeling_auto

    return set().union(*(getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES") for head in HEADS))


def downloads(model_type: str) -> int:
    """Returns how often models of a family were loaded in the last month, by the hub."""
    from huggingface_hub import HfApi

    found = HfApi().list_models(filter=model_type, sort="downloads", limit=MODELS_OF_A_FAMILY)
    return sum(model.downloads or 0 for model in found)


def missing(known: Iterable[str], all_of_them: Iterable[str], uses: Callable[[str], int]) -> list[tuple[str, int]]:
    """Returns the families that are not known and how much each is used, the most used first."""
    left = sorted(set(all_of_them) - set(known))
    return sorted(((name, uses(name)) for name in left), key=lambda found: -found[1])


def main() -> None:
    known = read_families(PAGE.read_text(encoding="utf-8"))
    for name, uses in missing(known, of_text(), downloads):
        print(f"{uses:>14,}  {name}")


if __name__ == "__main__":
    main()
