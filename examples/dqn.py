"""Train a DQN on RL-AQM's queue, in one file, in CleanRL's style.

    python examples/dqn.py [--steps 400000] [--envs 16] [--seed 1] [--save dqn.pt]

Needs `make extras EXTRAS="envs train"` in a checkout, `pip install 'quell-aqm[envs,train]'` beside an installed wheel.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from dataclasses import dataclass

from quell.common.extras import install

try:
    import gymnasium
    import numpy as np
    import torch
    from torch import nn
except ImportError as error:
    sys.exit(f"{error.name} is missing: " + install("envs", "train"))

import quell.envs  # noqa: F401 (registers the environment)

SCALE = np.array([1 / 50, 1.0, 1 / 0.5], dtype=np.float32)  # D in ms, U, p: all of the order of 1


@dataclass
class Arguments:
    """Options."""

    steps: int = 400_000
    """Transitions, counted over all environments."""
    envs: int = 16
    seed: int = 1
    save: str = ""
    gamma: float = 0.95
    rate: float = 1e-3
    batch: int = 256
    buffer: int = 50_000
    learn_from: int = 5_000
    updates_every: int = 4
    """Vector steps per gradient step."""
    target_every: int = 500
    """Gradient steps between copies into the target network."""
    epsilon_end: float = 0.02
    explore: float = 0.5
    """Share of the steps during which epsilon falls from 1."""


def arguments() -> Arguments:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in vars(Arguments()).items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    return Arguments(**vars(parser.parse_args()))


def main() -> None:
    """Train, printing the mean reward of every 1000 steps."""
    args = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    envs = gymnasium.make_vec("quell/RlAqm-v0", num_envs=args.envs)
    q = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 5))
    target = copy.deepcopy(q)
    optimizer = torch.optim.Adam(q.parameters(), lr=args.rate)

    seen = np.zeros((args.buffer, 3), np.float32)
    after = np.zeros((args.buffer, 3), np.float32)
    taken = np.zeros(args.buffer, np.int64)
    gained = np.zeros(args.buffer, np.float32)
    filled = updates = 0
    state = envs.reset(seed=args.seed)[0] * SCALE
    ended = np.zeros(args.envs, np.bool_)
    window: list[float] = []
    start = time.perf_counter()

    for step in range(args.steps // args.envs):
        epsilon = max(args.epsilon_end, 1 - step * args.envs / (args.explore * args.steps))
        with torch.no_grad():
            actions = q(torch.from_numpy(state)).argmax(1).numpy()
        random = rng.random(args.envs) < epsilon
        actions[random] = rng.integers(0, 5, int(random.sum()))
        following, rewards, _, truncated, _ = envs.step(actions)
        following = following * SCALE
        # The step after an episode's end only begins the next one (next-step autoreset). The state at an end still has
        # a value, since the time is up (truncation) but the queue continues.
        real = np.flatnonzero(~ended)
        places = (filled + np.arange(len(real))) % args.buffer
        seen[places], taken[places] = state[real], actions[real]
        gained[places], after[places] = rewards[real], following[real]
        filled += len(real)
        window.extend(rewards[real])
        state, ended = following, truncated

        if filled >= args.learn_from and step % args.updates_every == 0:
            batch = rng.integers(0, min(filled, args.buffer), args.batch)
            with torch.no_grad():
                best = target(torch.from_numpy(after[batch])).max(1).values
                goal = torch.from_numpy(gained[batch]) + args.gamma * best
            value = q(torch.from_numpy(seen[batch])).gather(1, torch.from_numpy(taken[batch])[:, None])[:, 0]
            loss = nn.functional.smooth_l1_loss(value, goal)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            updates += 1
            if updates % args.target_every == 0:
                target.load_state_dict(q.state_dict())
        if (step + 1) % 1000 == 0:
            speed = (step + 1) * args.envs / (time.perf_counter() - start)
            print(
                f"step {(step + 1) * args.envs:8}  reward {np.mean(window):7.3f}  epsilon {epsilon:.2f}  {speed:,.0f}/s"
            )
            window.clear()

    envs.close()
    if args.save:
        torch.save(q.state_dict(), args.save)
        print(f"saved {args.save}")


if __name__ == "__main__":
    main()
