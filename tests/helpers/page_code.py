"""The Python blocks of a documentation page, and the outputs that the page states for them.

`python -m page_code PAGE` runs the blocks of a page, which share their names, in the current folder: in a process of
its own, because programs that XLA compiles for a page stay as long as the process.

A page states an output in one of two ways, and both are compared with what the code prints:

* A block ```output directly below a block ```python holds all that the block prints.
* A comment behind a `print` holds what that one statement prints. A remark may follow after a colon and a space:
  `print(x.shape)  # (2, 10): two rows`.

In both, `...` stands for anything, for numbers that differ between machines. Spaces at the ends of lines do not count.
"""

import ast
import contextlib
import io
import re
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A Python block of a page.

    Args:
        line: Number of lines of the page above the code.
        code: The code.
        output: The text of the output block below it, or None.
    """

    line: int
    code: str
    output: str | None


def python_blocks(page: Path) -> list[Block]:
    """Returns the Python blocks of a page.

    Raises:
        AssertionError: If an output block does not stand directly below a Python block.
    """
    text = page.read_text(encoding="utf-8")
    blocks, end = [], 0
    for match in FENCE.finditer(text):
        language, code = match.groups()
        line = text[: match.start(2)].count("\n")
        if language == "output":
            directly_below = blocks and blocks[-1].output is None and not text[end : match.start()].strip()
            assert directly_below, f"{page.name}, line {line}: an output block must stand directly below a Python block"
            blocks[-1] = Block(blocks[-1].line, blocks[-1].code, code)
        elif language == "python":
            blocks.append(Block(line, code, None))
            end = match.end()
    return blocks


def stated_prints(code: str) -> dict[int, str]:
    """Returns the comments behind the `print` statements of the code, by the line that the statement begins in."""
    comments = {
        token.start[0]: token.string.removeprefix("#").strip()
        for token in tokenize.generate_tokens(io.StringIO(code).readline)
        if token.type == tokenize.COMMENT
    }
    return {
        node.lineno: comments[node.end_lineno]
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and getattr(node.value.func, "id", None) == "print"
        and node.end_lineno in comments
    }


def agrees(printed: str, stated: str) -> bool:
    """Whether printed text is what was stated, where `...` stands for anything."""
    printed, stated = ("\n".join(line.rstrip() for line in text.strip().splitlines()) for text in (printed, stated))
    return re.fullmatch(".*?".join(map(re.escape, stated.split("..."))), printed, re.DOTALL) is not None


def agrees_with_comment(printed: str, comment: str) -> bool:
    """Whether printed text is what a comment states, before the colon of its remark if it has one."""
    ends = [match.start() for match in re.finditer(": ", comment)]
    return any(agrees(printed, comment[:end]) for end in [len(comment), *ends])


def run_block(block: Block, names: dict, page: str) -> None:
    """Runs a block, and compares what it prints with what the page states.

    Args:
        block: The block.
        names: Global names of the code, those of the blocks above it; the block adds its own.
        page: Name of the page, for messages.

    Raises:
        AssertionError: If an output is not the stated one.
    """
    printed: dict[int, str] = {}

    def recording_print(*values: object, **options: object) -> None:
        text = io.StringIO()
        print(*values, **{**options, "file": text})
        line = sys._getframe(1).f_lineno - block.line
        printed[line] = printed.get(line, "") + text.getvalue()
        print(*values, **options)

    names["print"] = recording_print
    everything = io.StringIO()
    # blank lines in front make tracebacks show the line of the page
    code = compile("\n" * block.line + block.code, page, "exec")
    try:
        with contextlib.redirect_stdout(everything):
            exec(code, names)
    finally:
        print(everything.getvalue(), end="")  # into the report of a failed test
    for line, comment in stated_prints(block.code).items():
        found = printed.get(line, "")
        assert agrees_with_comment(found, comment), f"{page}:{block.line + line} prints {found!r}, states {comment!r}"
    if block.output is not None:
        found = everything.getvalue()
        assert agrees(found, block.output), f"{page}:{block.line} prints\n{found}\nbut the page states\n{block.output}"


def main(page: Path, name: str) -> None:
    names: dict = {"__name__": "documentation"}
    for block in python_blocks(page):
        run_block(block, names, name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
