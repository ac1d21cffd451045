"""The states of random generators through JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from minitrain.errors import CheckpointError, StateMismatch
from minitrain.rng import DROPOUT, INIT, SHUFFLE, decode_state, encode_state, restore_state, stream

BIT_GENERATORS = [np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64]


@pytest.mark.parametrize("kind", BIT_GENERATORS)
def test_every_generator_goes_on_where_it_was(kind: type[np.random.BitGenerator]) -> None:
    """After a trip through JSON the next draws are the same, those of a half-used 64-bit word included."""
    generator = np.random.Generator(kind(5))
    generator.random(7, dtype=np.float32)  # an odd number of 32-bit draws leaves half a word behind
    text = json.dumps(encode_state(generator.bit_generator.state), allow_nan=False)
    other = np.random.Generator(kind(6))
    restore_state(other, decode_state(json.loads(text)))
    np.testing.assert_array_equal(generator.random(9, dtype=np.float32), other.random(9, dtype=np.float32))
    np.testing.assert_array_equal(generator.normal(size=9), other.normal(size=9))


@pytest.mark.parametrize("kind", BIT_GENERATORS)
def test_no_number_in_the_json_is_too_large_for_a_double(kind: type[np.random.BitGenerator]) -> None:
    """Readers that hold numbers as doubles see the state unharmed: larger ones are decimal strings."""

    def check(text: str) -> int:
        number = int(text)
        assert abs(number) <= 2**53
        return number

    json.loads(json.dumps(encode_state(np.random.Generator(kind(5)).bit_generator.state)), parse_int=check)


def test_a_state_of_another_kind_is_refused() -> None:
    """A generator takes only states of its own kind, and is left as it was."""
    generator = np.random.default_rng(0)
    before = generator.bit_generator.state
    with pytest.raises(StateMismatch, match="MT19937"):
        restore_state(generator, np.random.Generator(np.random.MT19937(0)).bit_generator.state)
    assert generator.bit_generator.state == before


def test_what_no_generator_state_holds_is_refused() -> None:
    """A value of an unexpected type is named, not converted."""
    with pytest.raises(CheckpointError, match="float"):
        encode_state({"bit_generator": "PCG64", "state": 0.5})


def test_streams_do_not_touch_each_other() -> None:
    """Each purpose, index and seed starts elsewhere, a seed of several words included."""
    keys = [
        (purpose, seed, index)
        for purpose in (INIT, SHUFFLE, DROPOUT)
        for seed in (0, 1, 2, 2**32, 2**32 + 1, 2**64)
        for index in (0, 1, 2)
    ]
    assert len({stream(*key).integers(2**63) for key in keys}) == len(keys)
