"""The model card of a run, written from what the run did."""

from __future__ import annotations

import json
import platform
from typing import Any

import keras

from recipes.common.run_folder import RunFolder


def write_model_card(run: RunFolder, recipe: str, model: Any, results: dict[str, Any]) -> None:
    """Writes the model card of a run folder: what was trained, how, and what came out.

    Args:
        run: The run folder.
        recipe: Name of the recipe.
        model: The trained task, with a backbone.
        results: What the recipe measured, plain values.

    Example:

    >>> write_model_card(run, "translate", model, {"exact_match": 0.99})
    """
    rows = "\n".join(f"| {_cell(name)} | {_cell(value)} |" for name, value in results.items())
    pictures = "\n".join(f"![{path.stem}](plots/{path.name})" for path in sorted(run.plots.glob("*.png")))
    text = f"""# {type(model).__name__} trained with `recipes.{recipe}`

## Results

| measure | value |
| --- | --- |
{rows}

Keras {keras.__version__}, backend {keras.backend.backend()}, Python {platform.python_version()}, {platform.machine()}.

## Use

```python
import zoo

model = zoo.{type(model).__name__}.from_preset("model")
```

or, with `tensorflow` and `tensorflow_text` alone, `tf.saved_model.load("{run.export.name}").serve(["..."])`.

## Configuration

```yaml
{run.config_yaml.read_text(encoding="utf-8").strip()}
```

## Architecture

```json
{json.dumps(model.backbone.config.to_dict(), indent=2)}
```

## Pictures

{pictures}
"""
    run.write_text(run.model_card.name, text)


def _cell(value: Any) -> str:
    # neither a column nor a tag of HTML
    return str(value).replace("|", "\\|").replace("<", "&lt;")
