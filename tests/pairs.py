"""Options in pairs against formulas in NumPy, with as many seeds as there is time: `python tests/pairs.py 20`."""

import argparse
import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "helpers"))
KINDS = ("attention", "block", "generation")


def main():
    from pairwise import pairwise

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=int, nargs="?", default=10, help="how many designs are drawn")
    parser.add_argument("--first", type=int, default=1, help="the first seed; the tests have 0")
    parser.add_argument("--of", nargs="+", choices=KINDS, default=KINDS, help="whose options")
    arguments = parser.parse_args()
    all_failed = 0
    for kind in arguments.of:
        cases_of, count, failed = importlib.import_module(f"{kind}_cases"), 0, 0
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            for case in pairwise(cases_of.OPTIONS, cases_of.is_valid, seed):
                count += 1
                try:
                    error = cases_of.error(case)
                    is_wrong = not error < cases_of.tolerance(case)
                except Exception as raised:  # a crash is a finding too
                    is_wrong, error = True, repr(raised)[:300]
                if is_wrong:
                    failed += 1
                    print(f"{kind}, seed {seed}: {error}\n  {case}", flush=True)
        print(f"{kind}: {count} cases, {failed} failed", flush=True)
        all_failed += failed
    return 1 if all_failed else 0


if __name__ == "__main__":
    sys.exit(main())
