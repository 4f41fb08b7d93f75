"""Options of attention in pairs against a formula, with as many seeds as there is time: `python tests/pairs.py 20`."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "helpers"))


def main():
    import attention_cases
    import numpy as np
    from pairwise import pairwise

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=int, nargs="?", default=10, help="how many designs are drawn")
    parser.add_argument("--first", type=int, default=1, help="the first seed; the tests have 0")
    arguments = parser.parse_args()
    count, failed = 0, 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for case in pairwise(attention_cases.OPTIONS, attention_cases.is_valid, seed):
            count += 1
            layer = attention_cases.layer_of(case)
            try:
                actual, expected = attention_cases.run(case, layer), attention_cases.expected(case, layer)
                error = np.abs(actual - expected).max() / max(1, np.abs(expected).max())
                wrong = not error < (5e-3 if case["dtype"] == "float32" else 0.15)
            except Exception as raised:  # a crash is a finding too
                wrong, error = True, repr(raised)[:300]
            if wrong:
                failed += 1
                print(f"seed {seed}: {error}\n  {case}", flush=True)
    print(f"{count} cases, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
