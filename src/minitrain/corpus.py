"""The corpus: 600 forms of 25 Spanish verbs, each with its English.

It is generated from the rules of the grammar. Regular verbs take the endings of their class (-ar, -er, -ir);
irregular ones have rows of their own, for the tenses in which they are irregular. English needs only a past form and
a few spelling rules. So a model that reads some of the forms of a verb *can* work out those that it was not shown: the
held-out forms measure whether it found the grammar, not whether it has a good memory.

Everything here is deterministic, and `manifest_hash` names a list of examples by its content: a checkpoint records
the hash of the examples that it was trained on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

SPANISH_PERSONS = ("yo", "tú", "él", "nosotros", "vosotros", "ellos")
ENGLISH_PERSONS = ("I", "you", "he", "we", "you", "they")
TENSES = ("present", "preterite", "imperfect", "future")

ENDINGS = {
    ("ar", "present"): "o as a amos áis an",
    ("er", "present"): "o es e emos éis en",
    ("ir", "present"): "o es e imos ís en",
    ("ar", "preterite"): "é aste ó amos asteis aron",
    ("er", "preterite"): "í iste ió imos isteis ieron",
    ("ir", "preterite"): "í iste ió imos isteis ieron",
    ("ar", "imperfect"): "aba abas aba ábamos abais aban",
    ("er", "imperfect"): "ía ías ía íamos íais ían",
    ("ir", "imperfect"): "ía ías ía íamos íais ían",
}
FUTURE_ENDINGS = "é ás á emos éis án"
FUTURE_STEMS = {"tener": "tendr", "hacer": "har", "decir": "dir", "querer": "querr", "venir": "vendr"}

IRREGULAR = {
    ("ser", "present"): "soy eres es somos sois son",
    ("ser", "preterite"): "fui fuiste fue fuimos fuisteis fueron",
    ("ser", "imperfect"): "era eras era éramos erais eran",
    ("estar", "present"): "estoy estás está estamos estáis están",
    ("estar", "preterite"): "estuve estuviste estuvo estuvimos estuvisteis estuvieron",
    ("ir", "present"): "voy vas va vamos vais van",
    ("ir", "preterite"): "fui fuiste fue fuimos fuisteis fueron",
    ("ir", "imperfect"): "iba ibas iba íbamos ibais iban",
    ("tener", "present"): "tengo tienes tiene tenemos tenéis tienen",
    ("tener", "preterite"): "tuve tuviste tuvo tuvimos tuvisteis tuvieron",
    ("hacer", "present"): "hago haces hace hacemos hacéis hacen",
    ("hacer", "preterite"): "hice hiciste hizo hicimos hicisteis hicieron",
    ("decir", "present"): "digo dices dice decimos decís dicen",
    ("decir", "preterite"): "dije dijiste dijo dijimos dijisteis dijeron",
    ("ver", "present"): "veo ves ve vemos veis ven",
    ("ver", "preterite"): "vi viste vio vimos visteis vieron",
    ("ver", "imperfect"): "veía veías veía veíamos veíais veían",
    ("querer", "present"): "quiero quieres quiere queremos queréis quieren",
    ("querer", "preterite"): "quise quisiste quiso quisimos quisisteis quisieron",
    ("venir", "present"): "vengo vienes viene venimos venís vienen",
    ("venir", "preterite"): "vine viniste vino vinimos vinisteis vinieron",
}

VERBS = {
    "hablar": ("speak", "spoke"),
    "cantar": ("sing", "sang"),
    "trabajar": ("work", "worked"),
    "comprar": ("buy", "bought"),
    "llamar": ("call", "called"),
    "ayudar": ("help", "helped"),
    "caminar": ("walk", "walked"),
    "comer": ("eat", "ate"),
    "beber": ("drink", "drank"),
    "aprender": ("learn", "learned"),
    "correr": ("run", "ran"),
    "vender": ("sell", "sold"),
    "vivir": ("live", "lived"),
    "abrir": ("open", "opened"),
    "escribir": ("write", "wrote"),
    "recibir": ("receive", "received"),
    "ser": ("be", "was"),
    "estar": ("be", "was"),
    "ir": ("go", "went"),
    "tener": ("have", "had"),
    "hacer": ("make", "made"),
    "decir": ("say", "said"),
    "ver": ("see", "saw"),
    "querer": ("want", "wanted"),
    "venir": ("come", "came"),
}

HELD_OUT_FRACTION = 0.1


@dataclass(frozen=True, slots=True)
class VerbExample:
    """One form: the Spanish and the English say the same."""

    verb: str
    tense: str
    person: str
    es: str
    en: str

    @property
    def text(self) -> str:
        """The line that the model reads."""
        return f"{self.es}/{self.en}"


def conjugate(verb: str, tense: str) -> list[str]:
    """Returns the six forms of a verb in a tense, in the order of `SPANISH_PERSONS`."""
    if (verb, tense) in IRREGULAR:
        return IRREGULAR[verb, tense].split()
    if tense == "future":
        stem = FUTURE_STEMS.get(verb, verb)
        return [stem + ending for ending in FUTURE_ENDINGS.split()]
    stem, verb_class = verb[:-2], verb[-2:]
    return [stem + ending for ending in ENDINGS[verb_class, tense].split()]


def translate(verb: str, tense: str, person: int) -> str:
    """Returns the English of a form; `person` is its place in `ENGLISH_PERSONS`."""
    base, past = VERBS[verb]
    subject = ENGLISH_PERSONS[person]
    if tense == "future":
        return f"{subject} will {base}"
    if tense == "imperfect":
        return f"{subject} used to {base}"
    if base == "be":
        present = {"I": "am", "he": "is"}.get(subject, "are")
        return f"{subject} {present if tense == 'present' else 'was' if subject in ('I', 'he') else 'were'}"
    if tense == "preterite":
        return f"{subject} {past}"
    return f"{subject} {_third_person(base) if subject == 'he' else base}"


def _third_person(base: str) -> str:
    if base == "have":
        return "has"
    return base + ("es" if base.endswith("o") else "s")


def build_corpus() -> list[VerbExample]:
    """Returns all forms, verb by verb."""
    return [
        VerbExample(verb, tense, SPANISH_PERSONS[person], es, translate(verb, tense, person))
        for verb in VERBS
        for tense in TENSES
        for person, es in enumerate(conjugate(verb, tense))
    ]


def split_corpus(examples: Sequence[VerbExample]) -> tuple[list[VerbExample], list[VerbExample]]:
    """Splits into training and held-out forms by a hash of each form, so that no list order can move one."""

    def rank(example: VerbExample) -> str:
        return hashlib.sha256(_record(example).encode()).hexdigest()

    held_out = set(sorted(examples, key=rank)[: round(len(examples) * HELD_OUT_FRACTION)])
    return [e for e in examples if e not in held_out], [e for e in examples if e in held_out]


def manifest_hash(examples: Sequence[VerbExample]) -> str:
    """Returns the SHA-256 of the examples' canonical text: one line each, fields between tabs, in UTF-8."""
    return hashlib.sha256("".join(map(_record, examples)).encode()).hexdigest()


def _record(example: VerbExample) -> str:
    return "\t".join((example.verb, example.tense, example.person, example.es, example.en)) + "\n"
