"""Cases that have each pair of values of any two options at least once."""

import itertools
import random


def pairwise(options, is_valid=lambda case: True, seed=0, tries=400):
    """Returns cases, dictionaries with a value of each option, far fewer than there are combinations.

    Args:
        options: Values of each option, by name.
        is_valid: Whether a whole case makes sense. Pairs that no valid case was found for are left out.
        seed: Seed of the choices.
        tries: Random cases that are tried for each pair.
    """
    generator = random.Random(seed)

    def pairs(case):
        return set(itertools.combinations(sorted(case.items(), key=lambda item: item[0]), 2))

    left = {
        ((one, x), (other, y))
        for one, other in itertools.combinations(sorted(options), 2)
        for x in options[one]
        for y in options[other]
    }
    cases = []
    for wanted in sorted(left, key=repr):
        if wanted not in left:
            continue
        candidates = []
        for _ in range(tries):
            case = {name: generator.choice(values) for name, values in options.items()} | dict(wanted)
            if is_valid(case):
                candidates.append(case)
            if len(candidates) == 20:
                break
        if candidates:
            best = max(candidates, key=lambda case: len(pairs(case) & left))
            cases.append(best)
            left -= pairs(best)
    return cases
