"""Train stable-baselines3's A2C, the synchronous variant of A3C, on the queues of `quell train a3c-l4s`.

    python examples/sb3_a2c.py [--steps 40000] [--testbed] [--out a2c.safetensors]

Network, reward, discount and length of a rollout are A3C's; `--steps` counts 15 ms periods of all four queues together.
The actor becomes a file that the queue word `a3c_l4s model FILE` takes.
Needs `make extras EXTRAS="sb3 train"` in a checkout, `pip install 'quell-aqm[sb3,train]'` beside an installed wheel.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from quell.common.extras import install

try:
    import numpy as np
    import torch
    from gymnasium import spaces
    from stable_baselines3 import A2C
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as error:
    sys.exit(f"{error.name} is missing: " + install("sb3", "train"))

from quell.train import a3c, kit


class SubQueues(VecEnv):
    """Four queues in closed loops; every sub-queue is an environment, so that all share one network, as A3C's do.

    Observation: the twelve scaled readings. Action: p', -1 to 1. Reward: as `quell train a3c-l4s` counts it, 0 for a
    sub-queue without packets. An episode is truncated, for all sub-queues at once.
    """

    def __init__(self, arguments: a3c.Arguments) -> None:
        self.arguments = arguments
        self.scale = a3c.scaling(arguments, [])
        self.queues = [a3c.environment(arguments, k, []) for k in range(arguments.workers)]
        self.number = 0
        self.episodes: list[tuple[float, float]] = []
        """Mean reward and mean delay, ms, of the sub-queues with packets, by episode."""
        self._actions = np.zeros((0, 1), np.float32)
        self._rewards: list[float] = []
        self._delays: list[float] = []
        seen = self._begin()
        super().__init__(len(seen), spaces.Box(-np.inf, np.inf, (12,)), spaces.Box(-1.0, 1.0, (1,)))

    def _begin(self) -> Any:
        self._steps = [queue.begin(self.number) for queue in self.queues]
        self._at = 0
        self._rewards, self._delays = [], []
        return self._seen()

    def _seen(self) -> Any:
        return np.concatenate([self.scale(step.readings).numpy() for step in self._steps])

    def reset(self) -> Any:
        """Begin the next episode."""
        return self._begin()

    def step_async(self, actions: Any) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Advance every queue by one period."""
        probabilities = self.scale.probability(np.clip(self._actions[:, 0], -1, 1))
        rewards, first = [], 0
        for k, queue in enumerate(self.queues):
            busy = self._steps[k].busy
            mine = probabilities[first : first + len(busy)]
            first += len(busy)
            step = self._steps[k] = queue.step(np.where(busy, mine, 0.0))
            gain = np.where(busy, self.arguments.rewards(step), 0.0)
            rewards.append(gain)
            if busy.any():
                self._rewards.append(float(gain[busy].mean()))
                self._delays.append(float(step.delay_ms[busy].mean()))
        seen = self._seen()
        self._at += 1
        over = self._at == self.arguments.steps
        infos: list[dict[str, Any]] = [{} for _ in seen]
        if over:
            infos = [{"terminal_observation": row, "TimeLimit.truncated": True} for row in seen]
            self.episodes.append((float(np.mean(self._rewards)), float(np.mean(self._delays))))
            self.number += 1
            seen = self._begin()
        return seen, np.concatenate(rewards).astype(np.float32), np.full(len(seen), over), infos

    def close(self) -> None:
        """Do nothing: no resource is open."""

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """No wrappers."""
        return [False] * self.num_envs

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """No methods."""
        raise AttributeError(method_name)

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Only `render_mode`, which is none."""
        if attr_name == "render_mode":
            return [None] * self.num_envs
        raise AttributeError(attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """No attributes."""
        raise AttributeError(attr_name)


class _Stop(BaseCallback):
    """Stops after `periods`, counted over all queues."""

    def __init__(self, env: SubQueues, periods: int) -> None:
        super().__init__()
        self.env, self.periods = env, periods

    def _on_step(self) -> bool:
        return self.env.number * self.env.arguments.steps * len(self.env.queues) < self.periods


def train(arguments: a3c.Arguments, periods: int) -> tuple[SubQueues, A2C]:
    """Train for `periods`, counted over all queues."""
    kit.deterministic(arguments.seed)
    env = SubQueues(arguments)
    model = A2C(
        "MlpPolicy", env, n_steps=arguments.update_every, gamma=arguments.gamma, ent_coef=arguments.entropy,
        learning_rate=arguments.actor_rate, seed=arguments.seed, device="cpu",
        policy_kwargs={"net_arch": {"pi": [32, 32], "vf": [32, 32, 16]}, "activation_fn": torch.nn.ReLU},
    )  # fmt: skip
    model.learn(total_timesteps=10**12, callback=_Stop(env, periods))
    return env, model


def write(env: SubQueues, model: A2C, path: Path) -> None:
    """Write the actor as a policy file; A2C's spread does not depend on the state."""
    policy = model.policy
    first, second = (policy.mlp_extractor.policy_net[k] for k in (0, 2))
    spread = torch.nn.Linear(32, 1)
    torch.nn.init.zeros_(spread.weight)
    spread.bias.data = policy.log_std.detach().exp().expm1().log()
    layers = {"layers.0": first, "layers.1": second, "heads.0": policy.action_net, "heads.1": spread}
    tensors = {f"{name}.{k}": p.detach().clone() for name, layer in layers.items() for k, p in layer.named_parameters()}
    card = a3c.card(env.arguments, env.scale, {})
    card["name"] = "a2c-l4s"
    card["heads"][0]["activation"] = "linear"
    card["trained_on"] = f"stable-baselines3's A2C, {env.number} episodes of {len(env.queues)} queues"
    kit.write_model(path, tensors, card)


def main() -> None:
    """Train, and print the results of the first and the last episodes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--testbed", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("a2c.safetensors"))
    args = parser.parse_args()
    arguments = a3c.Arguments(testbed=args.testbed, seed=args.seed)
    env, model = train(arguments, args.steps)
    write(env, model, args.out)
    n = max(1, len(env.episodes) // 10)
    for name, part in (("first", env.episodes[:n]), ("last", env.episodes[-n:])):
        reward, delay = np.mean(part, axis=0)
        print(f"A2C, {name} {n} episodes: reward per step {reward:.3f}, delay {delay:.1f} ms")


if __name__ == "__main__":
    main()
