"""Random schemas of JSON whose texts are short, in several scripts; and what a text is by them."""

import json
import random

import jsonschema

NAMES = ["name", "years", "Größe", "名前", "اسم", "ชื่อ", "नाम", 'a "quoted" one', "back\\slash", "line\nend", "😀"]
WORDS = ["Ada", "wörld", "你好", "مرحبا", "สวัสดี", "नमस्ते", "", "tab\t", "/", "\u2028", "0"]
PATTERNS = ["^[a-c]{1,3}$", "^[0-9]{2}-[0-9]{2}$", "^(ja|nein|はい)$", "^x?y+z{2}$"]
FORMATS = ["date", "ipv4", "uuid"]


def make_schema(generator: random.Random, depth: int = 2) -> dict:
    """A schema of a text that ends: its strings, arrays and objects have most sizes.

    Args:
        generator: Where choices come from.
        depth: How many objects and arrays may be in each other.
    """
    kinds = ["string", "pattern", "format", "integer", "boolean", "null", "enum", "const", "nullable"]
    kinds += ["object", "object", "array", "tuple", "any_of", "reference"] if depth else []
    kind = generator.choice(kinds)
    if kind == "string":
        return {"type": "string", "minLength": generator.randint(0, 2), "maxLength": generator.randint(2, 6)}
    if kind == "pattern":
        return {"type": "string", "pattern": generator.choice(PATTERNS), "maxLength": 8}
    if kind == "format":
        return {"type": "string", "format": generator.choice(FORMATS)}
    if kind == "integer":
        least = generator.randint(-1000, 1000)
        return {"type": "integer", "minimum": least, "maximum": least + generator.randint(0, 5000)}
    if kind == "enum":
        return {"enum": generator.sample([*WORDS, 0, -1.5, None, True, [1, "x"], {"k": None}], generator.randint(1, 5))}
    if kind == "const":
        return {"const": generator.choice([*WORDS, 7, None, {"你": ["好"]}])}
    if kind == "nullable":
        return {"type": ["boolean", "null"]}
    if kind == "object":
        names = generator.sample(NAMES, generator.randint(0, 4))
        return {
            "type": "object",
            "properties": {name: make_schema(generator, depth - 1) for name in names},
            "required": generator.sample(names, generator.randint(0, len(names))),
            "additionalProperties": False,
        }
    if kind == "array":
        least = generator.randint(0, 2)
        return {
            "type": "array",
            "items": make_schema(generator, depth - 1),
            "minItems": least,
            "maxItems": least + generator.randint(0, 2),
        }
    if kind == "tuple":
        items = [make_schema(generator, depth - 1) for _ in range(generator.randint(1, 3))]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "items": False}
    if kind == "any_of":
        return {"anyOf": [make_schema(generator, depth - 1) for _ in range(generator.randint(1, 3))]}
    if kind == "reference":
        # all of a schema's own, so that the whole of it is where the reference says
        return {"type": "object", "properties": {"ref": {"$ref": "#/$defs/part"}}, "additionalProperties": False}
    return {"type": kind}


def make_schemas(seed: int, count: int) -> list[dict]:
    """Schemas of objects, arrays and values, with a definition that some of them refer to."""
    generator = random.Random(seed)
    part = {"type": "object", "properties": {"part": {"type": "boolean"}}, "additionalProperties": False}
    return [{**make_schema(generator), "$defs": {"part": part}} for _ in range(count)]


def faults(text: str, schema: dict) -> list[str]:
    """What is wrong with a text, by the standard library and by `jsonschema`; nothing if it is as it should be."""
    try:
        value = json.loads(text, object_pairs_hook=_without_repeats)
    except ValueError as error:
        return [str(error)]
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    return [error.message for error in validator.iter_errors(value)]


def _without_repeats(pairs: list) -> dict:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"a property comes twice: {names}")
    return dict(pairs)
