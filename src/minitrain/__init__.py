"""A small language-model trainer in numpy, read in one sitting.

Start with `machines`, which lists the five things that make up the state of a run. `corpus`, `tokenizer` and `data`
lead from grammar to batches; `module`, `layers` and `model` are the network with its backward pass; `optim`,
`schedule` and `loop` train it. `checkpoint` saves a run to a folder and brings it back bit for bit; `session` trains
with cairn as the store.
"""

from minitrain.checkpoint import CheckpointState, apply_checkpoint, load_checkpoint, save_checkpoint
from minitrain.errors import MinitrainError
from minitrain.loop import evaluate, train_n_steps, train_step
from minitrain.machines import Machines, build_machines
from minitrain.model import MiniGPTConfig, build_minigpt

__all__ = [
    "CheckpointState",
    "Machines",
    "MiniGPTConfig",
    "MinitrainError",
    "apply_checkpoint",
    "build_machines",
    "build_minigpt",
    "evaluate",
    "load_checkpoint",
    "save_checkpoint",
    "train_n_steps",
    "train_step",
]
