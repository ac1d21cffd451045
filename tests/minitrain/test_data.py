"""The corpus, the tokens, the batches and the iterator."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from minitrain.corpus import (
    IRREGULAR,
    SPANISH_PERSONS,
    TENSES,
    VERBS,
    VerbExample,
    build_corpus,
    conjugate,
    manifest_hash,
    split_corpus,
)
from minitrain.data import Batch, DataIterator, collate, epoch_order
from minitrain.errors import MinitrainError, StateMismatch
from minitrain.model import DEFAULT
from minitrain.tokenizer import BOS, CHARACTERS, EOS, PAD, SYMBOLS, decode, encode

CORPUS = build_corpus()
CORPUS_HASH = "e56a4e74e570d04254df5e7eb43902d148aab909238ba4fb520152465657d859"
TRAIN_HASH = "1ec163f0b21152ac8e6e857595d50ed718b70dbbe1851f1055bf5c771aa5e4c9"

WELL_KNOWN = [
    ("hablar", "present", "yo", "hablo", "I speak"),
    ("hablar", "present", "nosotros", "hablamos", "we speak"),
    ("hablar", "preterite", "nosotros", "hablamos", "we spoke"),
    ("cantar", "preterite", "ellos", "cantaron", "they sang"),
    ("trabajar", "imperfect", "nosotros", "trabajábamos", "we used to work"),
    ("caminar", "future", "él", "caminará", "he will walk"),
    ("comer", "present", "vosotros", "coméis", "you eat"),
    ("beber", "preterite", "él", "bebió", "he drank"),
    ("aprender", "imperfect", "yo", "aprendía", "I used to learn"),
    ("correr", "present", "él", "corre", "he runs"),
    ("vivir", "present", "nosotros", "vivimos", "we live"),
    ("vivir", "present", "vosotros", "vivís", "you live"),
    ("escribir", "preterite", "tú", "escribiste", "you wrote"),
    ("abrir", "future", "ellos", "abrirán", "they will open"),
    ("ser", "present", "yo", "soy", "I am"),
    ("ser", "present", "él", "es", "he is"),
    ("ser", "preterite", "ellos", "fueron", "they were"),
    ("ir", "preterite", "ellos", "fueron", "they went"),
    ("ir", "present", "él", "va", "he goes"),
    ("ir", "imperfect", "nosotros", "íbamos", "we used to go"),
    ("estar", "preterite", "yo", "estuve", "I was"),
    ("estar", "present", "tú", "estás", "you are"),
    ("tener", "present", "él", "tiene", "he has"),
    ("tener", "future", "yo", "tendré", "I will have"),
    ("hacer", "preterite", "él", "hizo", "he made"),
    ("hacer", "future", "nosotros", "haremos", "we will make"),
    ("decir", "preterite", "ellos", "dijeron", "they said"),
    ("decir", "imperfect", "él", "decía", "he used to say"),
    ("ver", "imperfect", "tú", "veías", "you used to see"),
    ("querer", "present", "ellos", "quieren", "they want"),
    ("venir", "present", "yo", "vengo", "I come"),
    ("venir", "future", "ellos", "vendrán", "they will come"),
]


@pytest.mark.parametrize("form", WELL_KNOWN, ids=lambda form: f"{form[3]}-{form[1]}")
def test_well_known_forms_are_right(form: tuple[str, str, str, str, str]) -> None:
    """Forms that any grammar prints, regular and irregular, with their English."""
    assert VerbExample(*form) in CORPUS


def test_every_form_is_there_once() -> None:
    """25 verbs, 4 tenses and 6 persons are 600 examples, and no line occurs twice."""
    assert len(CORPUS) == len(VERBS) * len(TENSES) * len(SPANISH_PERSONS) == 600
    assert len({(e.verb, e.tense, e.person) for e in CORPUS}) == 600
    assert len({(e.es, e.en) for e in CORPUS}) == 600


def test_every_conjugation_has_six_persons() -> None:
    """No row of endings or of irregular forms is short, and every irregular row is of a verb in use."""
    assert {len(conjugate(verb, tense)) for verb in VERBS for tense in TENSES} == {6}
    assert {verb for verb, _ in IRREGULAR} <= VERBS.keys()


def test_every_example_fits_the_context() -> None:
    """The longest line, with its begin and end, is at most one token longer than the context."""
    assert max(len(encode(e.text)) for e in CORPUS) + 2 <= DEFAULT.context_len + 1


def test_the_corpus_is_the_one_that_checkpoints_name() -> None:
    """The content of corpus and training part is fixed: another hash would orphan older checkpoints."""
    train, _ = split_corpus(CORPUS)
    assert manifest_hash(CORPUS) == manifest_hash(build_corpus()) == CORPUS_HASH
    assert manifest_hash(train) == TRAIN_HASH
    assert manifest_hash(CORPUS[::-1]) != CORPUS_HASH


def test_the_split_is_by_content() -> None:
    """A tenth is held out, nothing is in both parts, and the order of the list has no say."""
    train, held_out = split_corpus(CORPUS)
    assert (len(train), len(held_out)) == (540, 60)
    assert {e.text for e in train} | {e.text for e in held_out} == {e.text for e in CORPUS}
    assert not {e.text for e in train} & {e.text for e in held_out}
    assert set(split_corpus(CORPUS[::-1])[1]) == set(held_out)


def test_text_survives_the_tokenizer() -> None:
    """Every line comes back from its tokens, and the tokens fit the vocabulary of the model."""
    assert all(decode(encode(e.text)) == e.text for e in CORPUS)
    assert {character for e in CORPUS for character in e.text} <= set(CHARACTERS)
    assert len(SYMBOLS) == len(set(SYMBOLS)) <= DEFAULT.vocab_size
    with pytest.raises(MinitrainError, match="'ç'"):
        encode("français")


def test_a_batch_asks_for_the_next_token_and_hides_the_padding() -> None:
    """Worked example: the lines "va/he" and "es/he is", the first padded to the second."""
    short = VerbExample("ir", "present", "él", "va", "he")
    long = VerbExample("ser", "present", "él", "es", "he is")
    batch = collate([short, long])
    assert batch.inputs.tolist() == [[BOS, *encode("va/he"), EOS, PAD, PAD], [BOS, *encode("es/he is")]]
    assert batch.targets.tolist() == [[*encode("va/he"), EOS, PAD, PAD, PAD], [*encode("es/he is"), EOS]]
    assert batch.mask.sum(1).tolist() == [6, 9]


def texts(batch: Batch) -> list[str]:
    """Reads the lines of a batch back."""
    return [decode(row[row > EOS].tolist()) for row in batch.inputs]


def test_an_epoch_deals_every_example_once() -> None:
    """Each epoch is another order of the same examples, and its last batch holds what is left."""
    examples = CORPUS[:37]
    iterator = DataIterator(examples, batch_size=8, seed=0)
    epochs = []
    for number in range(3):
        assert (iterator.epoch, iterator.position) == (number, 0)
        batches = [texts(batch) for batch in itertools.islice(iterator, 5)]
        assert [len(batch) for batch in batches] == [8, 8, 8, 8, 5]
        epochs.append([text for batch in batches for text in batch])
    assert all(Counter(epoch) == Counter(e.text for e in examples) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.parametrize("steps", [0, 1, 4, 5, 12])
def test_a_restored_iterator_goes_on_in_the_middle(steps: int) -> None:
    """At an epoch's start, middle or end, the restored iterator deals the same batches on, into later epochs."""
    first = DataIterator(CORPUS[:37], batch_size=8, seed=3)
    for _ in range(steps):
        next(first)
    second = DataIterator(CORPUS[:37], batch_size=5, seed=9)
    next(second)
    second.load_state_dict(first.state_dict())
    for left, right in itertools.islice(zip(first, second, strict=True), 12):
        np.testing.assert_array_equal(left.inputs, right.inputs)


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    """Every epoch and every seed has an order of its own; asking in another sequence changes none."""
    keys = list(itertools.product(range(3), range(4)))
    orders = {key: epoch_order(*key, 50) for key in keys}
    epoch_order.cache_clear()
    assert all(epoch_order(*key, 50) == orders[key] for key in reversed(keys))
    assert len(set(orders.values())) == len(keys)
    assert {tuple(sorted(order)) for order in orders.values()} == {tuple(range(50))}


def test_other_examples_are_refused() -> None:
    """A place in one list of examples is no place in another."""
    state = DataIterator(CORPUS[:10], batch_size=4, seed=0).state_dict()
    with pytest.raises(StateMismatch, match="other data"):
        DataIterator(CORPUS[:11], batch_size=4, seed=0).load_state_dict(state)


@pytest.mark.parametrize(("count", "batch_size"), [(0, 4), (4, 0)])
def test_nothing_to_deal_is_refused(count: int, batch_size: int) -> None:
    """No examples, or batches of none, would loop without end."""
    with pytest.raises(MinitrainError, match="cannot deal"):
        DataIterator(CORPUS[:count], batch_size=batch_size, seed=0)
