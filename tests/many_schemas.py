"""Lets a small random model write JSON by many random schemas, and looks whether each text is what its schema says.

    python tests/many_schemas.py --schemas 1000 --seed 0

Each schema has texts of its own, drawn with a temperature of 1, so that they are as odd as the schema lets them be. A
text that comes to the most tokens is cut: it must be the beginning of one only. The last line says how many texts were
complete, how many of these were not what they should be, and how many were cut.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

from random_schemas import faults, make_schemas
from small_writer import make_writer

from zoo.generation import JSONSchema

MOST_TOKENS = 900


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--schemas", type=int, default=1000)
    parser.add_argument("--texts", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    model = make_writer()
    complete, wrong, cut = 0, 0, 0
    for number, schema in enumerate(make_schemas(arguments.seed, arguments.schemas)):
        texts = model.generate(
            "hello",
            grammar=JSONSchema(schema),
            sampler="sample",
            seed=number,
            num_results=arguments.texts,
            max_new_tokens=MOST_TOKENS,
            strip_prompt=True,
        )
        for text in texts:
            if len(model.tokenizer.tokenize(text)) >= MOST_TOKENS:
                cut += 1
                continue
            complete += 1
            found = faults(text, schema)
            if found:
                wrong += 1
                print(f"schema {number}: {schema}\n{text!r}\n{found}", flush=True)
    print(f"{arguments.schemas} schemas: {complete} texts complete, {wrong} of them wrong, {cut} cut")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
