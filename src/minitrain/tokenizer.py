"""One token for each character, and three that are no characters.

The Spanish and English of the corpus need 38 of the model's 64 tokens. Padding is token 0, so that an array of
zeros is a batch of nothing.
"""

from __future__ import annotations

from minitrain.errors import MinitrainError

PAD, BOS, EOS = 0, 1, 2
CHARACTERS = "abcdefghijklmnopqrstuvwxyzáéíóúñI /"
SYMBOLS = ("<pad>", "<bos>", "<eos>", *CHARACTERS)

_TOKEN_OF = {symbol: token for token, symbol in enumerate(SYMBOLS)}


def encode(text: str) -> list[int]:
    """Maps characters to tokens."""
    try:
        return [_TOKEN_OF[character] for character in text]
    except KeyError as error:
        raise MinitrainError(f"{text!r} holds {error.args[0]!r}, which is not in the alphabet.") from None


def decode(tokens: list[int]) -> str:
    """Maps tokens to their symbols."""
    return "".join(SYMBOLS[token] for token in tokens)
