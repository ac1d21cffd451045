"""Power cuts: whatever of the last writes and names is lost, no commit that was reported is, and none is half there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.races.cuts import BESIDE, OPERATIONS, beside, during
from tests.races.scenes import Builder, Scene, build, build_with_trash

WITH_TRASH = ("commit of dropped content", "undrop", "gc", "gc --compact")
"""Operations that care about what an earlier gc left in the trash."""


@pytest.mark.parametrize(
    ("name", "builder"), [*((name, build) for name in OPERATIONS), *((name, build_with_trash) for name in WITH_TRASH)]
)
def test_a_power_cut_during_an_operation_leaves_the_state_before_or_after_it(
    scene: Callable[[Builder], Scene], name: str, builder: Builder
) -> None:
    """At every step and after the last one; what was reported as done is still done."""
    print(f"{name}: {during(scene(builder), name)} cuts")


@pytest.mark.parametrize("dies", [False, True], ids=["stopped", "dead"])
@pytest.mark.parametrize("name", BESIDE)
def test_what_was_reported_survives_a_cut_that_undoes_what_it_stood_on(
    scene: Callable[[Builder], Scene], name: str, *, dies: bool
) -> None:
    """An operation is stopped or dies before each of its steps, another runs to its end, and then the power fails."""
    print(f"{name}: {beside(scene(build), name, dies=dies)} cuts")
