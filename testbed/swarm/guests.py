# SPDX-License-Identifier: GPL-2.0
"""Loads by which the kernel itself is judged: on another machine, on a kernel with a fault, and if the guest fails."""

import dataclasses
import pathlib

from ..machines import kernel
from ..series.base import Base
from ..util import Fail, digest, say
from .draw import Load
from .promises import Figures, Swarm
from .run import Runner

# How much longer a guest takes whose kernel checks itself.
SLOW = {"debug": 5}


class Guests(Runner):
    """Guests of a kind of machine, and of the kernel `image` in the place of those that the sides name."""

    def __init__(
        self,
        swarm: Swarm,
        base: Base,
        trace: bool = False,
        kind: str = "",
        image: pathlib.Path | None = None,
        words: tuple[str, ...] = (),
    ) -> None:
        if kind in SLOW:
            swarm = dataclasses.replace(swarm, data=swarm.data | {"limit": SLOW[kind] * swarm.limit})
        super().__init__(swarm, base, trace)
        if not image and kind in ("", swarm.kinds[0]):
            return
        usual, self.words = self.kernels, (*self.words, *words)
        if image:
            self.kernels = dict.fromkeys(usual, image)
        else:
            made = kernel.kernels(base, swarm.experiment.flavour(kind), only=set(swarm.sides.values()))
            self.kernels = {side: made[name] for side, name in swarm.sides.items()}
        self.keys = {own: digest(self.keys[usual[side]], own, *self.words) for side, own in self.kernels.items()}

    def one(self, side: str, load: Load, name: str) -> Figures:
        try:
            return super().one(side, load, name)
        except Fail as fail:
            # A figure like others, but never kept: the host may have been busy.
            if not hasattr(self.swarm.world, "sick"):
                raise
            say(f"{name}: {str(fail).splitlines()[0]}")
            return self.swarm.world.sick(fail, load)
