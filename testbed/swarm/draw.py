# SPDX-License-Identifier: GPL-2.0
"""Drawing loads: all that a world draws comes from these, and all that they know is the seed.

Only random.Random(seed).random() is asked, which Python promises to be the same in every version.
"""

import math
import random
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")
# A load is data, as a case of a swarm.toml has it. Which keys it has, its world says.
Load = dict[str, Any]


class Dice:
    """The choices of one seed, in order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random

    def one_of(self, values: Sequence[T]) -> T:
        return values[int(self.random() * len(values))]

    def chance(self, part: float) -> bool:
        return self.random() < part

    def between(self, least: float, most: float) -> int:
        """A whole number, as likely from 1 to 2 as from 100 to 200."""
        return round(math.exp(math.log(least) + self.random() * (math.log(most) - math.log(least))))

    def near(self, value: float, part: float = 0.06) -> int:
        """A whole number not far from another: without it all threads end at the same instant."""
        return max(round(value * (1 + part * (2 * self.random() - 1))), 1)

    def shuffled(self, values: Sequence[T]) -> list[T]:
        left, found = list(values), []
        while left:
            found.append(left.pop(int(self.random() * len(left))))
        return found
