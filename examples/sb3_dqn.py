"""Train stable-baselines3's DQN and PPO on RL-AQM's queue, unchanged.

    python examples/sb3_dqn.py [--steps 50000]

Needs `make extras EXTRAS=sb3` in a checkout, `pip install 'quell-aqm[sb3]'` beside an installed wheel.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from quell.common.extras import install

try:
    import gymnasium
    import numpy as np
    from stable_baselines3 import DQN, PPO
except ImportError as error:
    sys.exit(f"{error.name} is missing: " + install("sb3"))

import quell.envs  # noqa: F401 (registers the environment)

SCALE = np.array([1 / 50, 1.0, 1 / 0.5], dtype=np.float32)  # D in ms, U, p: all of the order of 1


def make() -> gymnasium.Env[Any, Any]:
    """RL-AQM's queue, its observation scaled."""
    env = gymnasium.make("quell/RlAqm-v0")
    space = gymnasium.spaces.Box(0.0, np.inf, (3,), np.float32)
    return gymnasium.wrappers.TransformObservation(env, lambda seen: seen * SCALE, space)


def mean_reward(model: Any, steps: int = 6000) -> float:
    """Reward per step of the greedy policy over one episode."""
    env = make()
    seen, _ = env.reset(seed=1000)
    total = 0.0
    for k in range(steps):
        seen, reward, _, over, _ = env.step(int(model.predict(seen, deterministic=True)[0]))
        total += float(reward)
        if over:
            return total / (k + 1)
    return total / steps


def main() -> None:
    """Train both and print the reward per step before and after."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50_000)
    steps = parser.parse_args().steps
    dqn = DQN("MlpPolicy", make(), gamma=0.95, learning_starts=min(1000, steps // 2), train_freq=4, seed=1)
    ppo = PPO("MlpPolicy", make(), gamma=0.95, n_steps=512, seed=1)
    for name, model in (("DQN", dqn), ("PPO", ppo)):
        judged = min(steps, 6000)  # at most one episode
        before = mean_reward(model, judged)
        model.learn(total_timesteps=steps)
        print(f"{name}: reward per step {before:.3f} before, {mean_reward(model, judged):.3f} after {steps} steps")


if __name__ == "__main__":
    main()
