"""What modules, optimizers, schedulers and generators say of themselves, taken as it is, and trained on with."""

from __future__ import annotations

import copy
import inspect
import random
import subprocess
import sys
import warnings
from collections import Counter, OrderedDict
from typing import Any

import numpy as np
import pytest
from tests.torch.common import back, bits, tensors_in, torch

import cairn
from cairn.errors import UnsupportedValue
from cairn.state.encode import sketch

schedulers: Any = torch.optim.lr_scheduler


class Model(torch.nn.Module):  # type: ignore[misc]  # torch is Any here, installed or not
    """A classifier with tied weights, batch norm, dropout, a channels_last filter and a half-precision buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(11, 8)
        self.conv = torch.nn.Conv2d(1, 3, 3, padding=1).to(memory_format=torch.channels_last)
        self.norm = torch.nn.BatchNorm2d(3)
        self.drop = torch.nn.Dropout(0.2)
        self.mix = torch.nn.Linear(3 * 8, 8)
        self.head = torch.nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.tensor(0.5, dtype=torch.bfloat16))

    def forward(self, tokens: Any) -> Any:
        """Read tokens (batch, time) into logits (batch, 11)."""
        seen = self.drop(self.norm(self.conv(self.embed(tokens)[:, None])))
        return self.head(self.mix(seen.mean(2).flatten(1)) * self.scale.float())


class Training:
    """A model with all that training it needs, and what it does in one step."""

    def __init__(self) -> None:
        torch.manual_seed(7)
        random.seed(7)
        self.model = Model()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = schedulers.OneCycleLR(self.optimizer, 0.05, total_steps=20)
        self.scaler = torch.amp.GradScaler("cpu")
        self.data = torch.Generator().manual_seed(3)
        self.losses: list[float] = []

    def steps(self, count: int) -> None:
        """Train on random tokens."""
        for _ in range(count):
            tokens = torch.randint(0, 11, (4, 6), generator=self.data)
            logits = self.model(tokens) * random.uniform(0.9, 1.1)
            loss = torch.nn.functional.cross_entropy(logits, tokens[:, 0])
            self.optimizer.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.scheduler.step()
            self.losses.append(loss.item())

    def state(self) -> dict[str, Any]:
        """Everything that the next step depends on."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "scaler": self.scaler.state_dict(),
            "rng": {"torch": torch.get_rng_state(), "data": self.data.get_state(), "python": random.getstate()},
        }

    def restore(self, state: Any) -> None:
        """Take on a state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.scaler.load_state_dict(state["scaler"])
        torch.set_rng_state(state["rng"]["torch"])
        self.data.set_state(state["rng"]["data"])
        random.setstate(state["rng"]["python"])


def test_training_goes_on_bit_for_bit(store: cairn.Store) -> None:
    """A run that is resumed, eagerly or lazily, ends in the very state, to the manifest id, of one never stopped."""
    whole = Training()
    run = store.run()
    whole.steps(3)
    run.commit(whole.state(), step=3)
    taken = copy.deepcopy(whole.state())
    whole.steps(4)
    last = run.commit(whole.state(), step=7)
    assert bits(run.load(step=3)) == bits(taken)
    lazy: Any = run.open(step=3)
    parts = {name: lazy[name].load() for name in lazy if name != "model"}
    for name, state in (("eager", run.load(step=3)), ("lazy", parts | {"model": lazy["model"]})):
        resumed = Training()
        resumed.steps(1)
        resumed.restore(state)
        resumed.steps(4)
        assert resumed.losses[1:] == whole.losses[3:]
        assert store.run(name).commit(resumed.state(), step=7).manifest == last.manifest


def test_a_state_dict_is_taken_as_it_is() -> None:
    """An OrderedDict with its module versions, tied weights one tensor, logical values of channels_last filters."""
    training = Training()
    training.steps(1)
    found = back(training.model.state_dict())
    assert type(found) is OrderedDict
    assert vars(found)["_metadata"]["norm"] == {"version": 2}
    assert found["head.weight"] is found["embed.weight"]
    assert type(found["embed.weight"]) is torch.Tensor
    assert found["scale"].dtype == torch.bfloat16
    assert found["norm.num_batches_tracked"].shape == ()
    fresh = Model()
    assert not any(fresh.load_state_dict(found))
    assert bits(fresh.state_dict()) == bits(training.model.state_dict())


def test_ties_between_a_model_and_what_trains_it_hold() -> None:
    """An average that shares memory with the model is one tensor with it, and parameters stay parameters."""
    model = Model()
    found = back({"model": model.state_dict(), "again": model.state_dict(), "all": dict(model.named_parameters())})
    assert found["again"]["mix.weight"] is found["model"]["mix.weight"]
    assert [type(item) for item in found["all"].values()] == [torch.nn.Parameter] * 7
    assert not any(item is other for item in found["all"].values() for other in found["model"].values())


def all_schedulers() -> dict[str, Any]:
    """Every scheduler of torch's, and how it is made."""
    made = {
        "LambdaLR": lambda o: schedulers.LambdaLR(o, lambda epoch: 0.9**epoch),
        "MultiplicativeLR": lambda o: schedulers.MultiplicativeLR(o, lambda epoch: 0.9),
        "StepLR": lambda o: schedulers.StepLR(o, 2),
        "MultiStepLR": lambda o: schedulers.MultiStepLR(o, [1, 2, 2]),
        "ConstantLR": schedulers.ConstantLR,
        "LinearLR": schedulers.LinearLR,
        "ExponentialLR": lambda o: schedulers.ExponentialLR(o, 0.9),
        "PolynomialLR": schedulers.PolynomialLR,
        "CosineAnnealingLR": lambda o: schedulers.CosineAnnealingLR(o, 10),
        "CosineAnnealingWarmRestarts": lambda o: schedulers.CosineAnnealingWarmRestarts(o, 10),
        "CyclicLR": lambda o: schedulers.CyclicLR(o, 0.1, 0.2),
        "OneCycleLR": lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=10),
        "ReduceLROnPlateau": schedulers.ReduceLROnPlateau,
        "SequentialLR": lambda o: schedulers.SequentialLR(
            o, [schedulers.ConstantLR(o), schedulers.MultiStepLR(o, [3])], [2]
        ),
        "ChainedScheduler": lambda o: schedulers.ChainedScheduler([schedulers.StepLR(o, 2), schedulers.LinearLR(o)]),
    }
    known = {name for name, kind in vars(schedulers).items() if inspect.isclass(kind)
             and issubclass(kind, schedulers.LRScheduler) and kind.__module__ == schedulers.__name__}  # fmt: skip
    assert known - {"LRScheduler", "_LRScheduler"} <= set(made)
    return made


def stepped(scheduler: Any, optimizer: Any, count: int) -> list[float]:
    """Steps a scheduler, and says how fast it learns."""
    rates = []
    for number in range(count):
        optimizer.step()
        scheduler.step(1.0 + number) if isinstance(scheduler, schedulers.ReduceLROnPlateau) else scheduler.step()
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


@pytest.mark.filterwarnings("ignore:The epoch parameter")  # SequentialLR uses what it tells others not to
@pytest.mark.parametrize("name", all_schedulers())
def test_sched_every_scheduler_goes_on(name: str) -> None:
    """SCHED: the state of each scheduler of torch's round-trips exactly, [None] of LambdaLR included, and goes on."""
    first, second = (torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1, momentum=0.9) for _ in range(2))
    scheduler, other = all_schedulers()[name](first), all_schedulers()[name](second)
    stepped(scheduler, first, 2)
    found = back({"scheduler": scheduler.state_dict(), "optimizer": first.state_dict()})
    if name == "LambdaLR":
        assert found["scheduler"]["lr_lambdas"] == [None]
    if name == "MultiStepLR":
        assert type(found["scheduler"]["milestones"]) is Counter
    second.load_state_dict(found["optimizer"])
    other.load_state_dict(found["scheduler"])
    assert stepped(other, second, 5) == stepped(scheduler, first, 5)


class Decay:
    """A learning-rate rule with a state of its own."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __call__(self, epoch: int) -> float:
        """Say by what to multiply the rate."""
        return float(self.rate**epoch)


def test_sched_code_in_a_state_is_refused() -> None:
    """SCHED: a callable object gives its __dict__, which is kept; a real lambda is refused with its path."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    kept = schedulers.LambdaLR(optimizer, Decay(0.5)).state_dict()
    assert back(kept)["lr_lambdas"] == [{"rate": 0.5}]
    with pytest.raises(UnsupportedValue, match=r"^scheduler/lr_lambdas/0: .*function.*nothing is pickled"):
        sketch({"scheduler": kept | {"lr_lambdas": [lambda epoch: 0.9**epoch]}})


OPTIMIZERS = sorted(
    name for name, kind in vars(torch.optim).items()
    if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer) and name != "Optimizer"
)  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_goes_on(name: str) -> None:
    """The state of each optimizer of torch's round-trips exactly after steps, and training goes on bit for bit."""

    def made() -> tuple[Any, Any]:
        torch.manual_seed(1)
        weight = torch.nn.Parameter(torch.randn(4, 4))
        return weight, getattr(torch.optim, name)([weight], lr=0.01)

    def step(weight: Any, optimizer: Any) -> None:
        def loss() -> Any:
            optimizer.zero_grad()
            value = ((weight @ weight - 1) ** 2).sum()
            value.backward()
            if name == "SparseAdam":
                weight.grad = weight.grad.to_sparse()
            return value

        optimizer.step(loss)

    weight, optimizer = made()
    for _ in range(3):
        step(weight, optimizer)
    found = back({"model": {"w": weight}, "optimizer": optimizer.state_dict()})
    other_weight, other = made()
    with torch.no_grad():
        other_weight.copy_(found["model"]["w"])
    other.load_state_dict(found["optimizer"])
    for _ in range(3):
        step(weight, optimizer)
        step(other_weight, other)
    assert bits(other_weight) == bits(weight)
    assert bits(other.state_dict()) == bits(optimizer.state_dict())


def test_pg_order_and_types_of_groups_stay() -> None:
    """PG: the order of states and groups, ids, tuples and a rate that is a tensor return exactly."""
    state = {
        "state": {number: {"step": torch.tensor(3.0), "exp_avg": torch.full((4,), float(number))}
                  for number in (2, 0, 1)},
        "param_groups": [
            {"lr": torch.tensor(0.1), "betas": (0.9, 0.999), "weight_decay": 0.1, "params": [0, 1]},
            {"lr": 0.1, "betas": (0.9, 0.999), "weight_decay": 0, "foreach": None, "params": [2]},
        ],
    }  # fmt: skip
    back({"state": {140312345678912: {}, 140312345678900: {}}, "param_groups": [{"params": [140312345678900]}]})
    found = back(state)
    assert list(found["state"]) == [2, 0, 1]
    assert found["state"][2]["exp_avg"].tolist() == [2, 2, 2, 2]
    assert type(found["param_groups"][0]["betas"]) is tuple
    assert found["param_groups"][0]["lr"].shape == ()
    weights = [torch.nn.Parameter(torch.ones(4)) for _ in range(3)]
    optimizer = torch.optim.Adam([{"params": weights[:2]}, {"params": weights[2:], "weight_decay": 0}])
    optimizer.load_state_dict(found)
    assert optimizer.state[weights[2]]["exp_avg"].tolist() == [2, 2, 2, 2]


def test_wo_generators_go_on_without_pickle(store: cairn.Store) -> None:
    """WO: the state of all generators loads where unpickling is impossible, types kept, and each draws on."""
    np.random.seed(5)
    random.seed(5)
    torch.manual_seed(5)
    state = {"numpy": np.random.get_state(), "python": random.getstate(), "torch": torch.get_rng_state()}
    store.run().commit({"rng": state}, step=1)
    draws = [np.random.rand(5).tolist(), [random.random() for _ in range(5)], torch.rand(5).tolist()]
    script = (
        "import sys, pickle, random; import numpy as np; import torch; import cairn\n"
        "def never(*_): raise AssertionError('unpickled')\n"
        "class Never(pickle.Unpickler): find_class = never\n"
        "pickle.Unpickler, pickle.load, pickle.loads = Never, never, never\n"
        "rng = cairn.open(sys.argv[1]).load('latest')['rng']\n"
        "kinds = [type(v).__name__ for v in rng['numpy']] + [len(rng['python'][1]), rng['torch'].shape[0]]\n"
        "assert kinds == ['str', 'ndarray', 'int', 'int', 'float', 625, 5056], kinds\n"
        "assert (rng['numpy'][1].dtype, rng['torch'].dtype) == (np.uint32, torch.uint8)\n"
        "np.random.set_state(rng['numpy']); random.setstate(rng['python']); torch.set_rng_state(rng['torch'])\n"
        "print([np.random.rand(5).tolist(), [random.random() for _ in range(5)], torch.rand(5).tolist()])"
    )
    done = subprocess.run([sys.executable, "-c", script, str(store.path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(draws)


def test_tgen_states_of_generators_stay_bytes_on_the_cpu() -> None:
    """TGEN: the global state, that of a generator, and a list of one state a device are uint8 tensors, and go on."""
    generator = torch.Generator().manual_seed(9)
    torch.rand(3, generator=generator)
    found = back({"global": torch.get_rng_state(), "one": generator.get_state(), "devices": [generator.get_state()]})
    for tensor in tensors_in(found):
        assert (tensor.dtype, tensor.device.type, tensor.shape) == (torch.uint8, "cpu", (5056,))
    other = torch.Generator()
    other.set_state(found["devices"][0])
    assert torch.rand(5, generator=other).tolist() == torch.rand(5, generator=generator).tolist()
    torch.set_rng_state(found["global"])


def test_sched_the_state_of_a_grad_scaler_comes_back() -> None:
    """SCHED: a scaler's numbers are plain, and one that is disabled has none."""
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    found = back(scaler.state_dict())
    other = torch.amp.GradScaler("cpu")
    other.load_state_dict(found)
    assert other.get_scale() == 8.0
    assert back(torch.amp.GradScaler("cpu", enabled=False).state_dict()) == {}


def test_a_commit_gives_no_warning_and_changes_nothing(store: cairn.Store) -> None:
    """Committing reads: no warning, no gradient, hook, version or layout of the model changes."""
    training = Training()
    training.steps(1)
    before = [(p._version, p.grad is None, p.stride(), p.requires_grad) for p in training.model.parameters()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.run().commit(training.state(), step=1)
    assert before == [(p._version, p.grad is None, p.stride(), p.requires_grad) for p in training.model.parameters()]
