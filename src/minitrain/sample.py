"""Reading what the model has learned: it completes a line, one most likely token at a time."""

from __future__ import annotations

import numpy as np

from minitrain.model import MiniGPT
from minitrain.tokenizer import BOS, EOS, SYMBOLS, decode, encode


def complete(model: MiniGPT, start: str) -> str:
    """Returns the model's most likely continuation of a line, without the start."""
    tokens = [BOS, *encode(start)]
    first = len(tokens)
    while len(tokens) < model.config.context_len:
        logits = model.forward(np.array([tokens]))  # (1, T, V)
        token = int(logits[0, -1, EOS : len(SYMBOLS)].argmax()) + EOS  # neither padding, begin nor unused tokens
        if token == EOS:
            break
        tokens.append(token)
    return decode(tokens[first:])
