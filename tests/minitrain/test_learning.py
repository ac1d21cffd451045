"""That training teaches the model something."""

from __future__ import annotations

from minitrain.bigram import bigram_loss
from minitrain.corpus import build_corpus, split_corpus
from minitrain.loop import evaluate, train_n_steps
from minitrain.machines import build_machines
from minitrain.testing import byte_equal, capture_full_state

STEPS = 200


def test_the_model_beats_counting_pairs_on_forms_it_never_saw() -> None:
    """After 200 steps the held-out loss is below two thirds of the best bigram model's."""
    train, held_out = split_corpus(build_corpus())
    machines = build_machines(0)
    baseline, _ = bigram_loss(train, held_out)
    assert evaluate(machines.model, held_out) > baseline
    train_n_steps(*machines, n=STEPS)
    assert evaluate(machines.model, held_out) < baseline * 2 / 3


def test_evaluation_moves_nothing() -> None:
    """Measuring the held-out loss leaves all five machines as they were, so it cannot change the run."""
    machines = build_machines(0)
    before = capture_full_state(*machines)
    _, held_out = split_corpus(build_corpus())
    evaluate(machines.model, held_out)
    assert byte_equal(before, capture_full_state(*machines))


def test_the_same_seed_is_the_same_run_and_another_seed_another() -> None:
    """Two runs of one seed have equal losses to the last bit."""
    first, again, other = (train_n_steps(*build_machines(seed), n=3, return_losses=True) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert all(type(loss) is float for loss in first)
