"""Train PPO on RL-AQM's queue, in one file, in CleanRL's style.

    python examples/ppo.py [--steps 400000] [--envs 16] [--seed 1] [--save ppo.pt]

Needs `make extras EXTRAS="envs train"` in a checkout, `pip install 'quell-aqm[envs,train]'` beside an installed wheel.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

from quell.common.extras import install

try:
    import gymnasium
    import numpy as np
    import torch
    from torch import nn
    from torch.distributions import Categorical
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
    lamda: float = 0.95
    """Lambda of the generalised advantage estimation."""
    rate: float = 1e-3
    rollout: int = 128
    """Vector steps between updates."""
    epochs: int = 4
    batches: int = 4
    """Minibatches per epoch."""
    clip: float = 0.2
    entropy: float = 0.01
    value: float = 0.5
    norm: float = 0.5
    """Largest norm of a gradient."""


def arguments() -> Arguments:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in vars(Arguments()).items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    return Arguments(**vars(parser.parse_args()))


def body() -> nn.Sequential:
    """Hidden layers; actor and critic each have their own."""
    return nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())


def main() -> None:
    """Train, printing the mean reward of every eighth rollout."""
    args = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    envs = gymnasium.make_vec("quell/RlAqm-v0", num_envs=args.envs)
    actor, critic = nn.Sequential(body(), nn.Linear(32, 5)), nn.Sequential(body(), nn.Linear(32, 1))
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=args.rate, eps=1e-5)

    shape = (args.rollout, args.envs)
    seen, actions, chances = torch.zeros(*shape, 3), torch.zeros(shape, dtype=torch.int64), torch.zeros(shape)
    rewards, values, ends, skipped = torch.zeros(shape), torch.zeros(shape), torch.zeros(shape), torch.zeros(shape)
    state = torch.from_numpy(envs.reset(seed=args.seed)[0] * SCALE)
    ended = torch.zeros(args.envs)
    window: list[float] = []
    start = time.perf_counter()
    updates = args.steps // (args.rollout * args.envs)

    for update in range(updates):
        optimizer.param_groups[0]["lr"] = args.rate * (1 - update / updates)
        for step in range(args.rollout):
            with torch.no_grad():
                choice = Categorical(logits=actor(state))
                action = choice.sample()
                seen[step], actions[step], chances[step] = state, action, choice.log_prob(action)
                values[step] = critic(state)[:, 0]
            following, reward, _, truncated, _ = envs.step(action.numpy())
            # The step after an episode's end only begins the next one (next-step autoreset): it teaches nothing.
            skipped[step] = ended
            rewards[step] = torch.from_numpy(reward).float()
            state, ended = torch.from_numpy(following * SCALE), torch.from_numpy(truncated).float()
            ends[step] = ended
            window.extend(reward[skipped[step].numpy() == 0])

        with torch.no_grad():
            advantages, later = torch.zeros(shape), torch.zeros(args.envs)
            after = critic(state)[:, 0]
            for step in reversed(range(args.rollout)):
                # Truncation: the queue continues, so the state after an end has a value. Its advantages end there.
                error = rewards[step] + args.gamma * after - values[step]
                later = error + args.gamma * args.lamda * (1 - ends[step]) * later
                later = later * (1 - skipped[step])
                advantages[step], after = later, values[step]
            goals = advantages + values

        real = torch.nonzero(skipped.flatten() == 0)[:, 0]
        flat = [part.flatten(0, 1)[real] for part in (seen, actions, chances, advantages, goals)]
        for _ in range(args.epochs):
            for rows in torch.randperm(len(real)).chunk(args.batches):
                inputs, chosen, before, advantage, goal = (part[rows] for part in flat)
                choice = Categorical(logits=actor(inputs))
                ratio = (choice.log_prob(chosen) - before).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                gain = torch.min(ratio * advantage, ratio.clamp(1 - args.clip, 1 + args.clip) * advantage).mean()
                miss = (critic(inputs)[:, 0] - goal).square().mean()
                loss = args.value * miss - gain - args.entropy * choice.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, args.norm)
                optimizer.step()

        if (update + 1) % 8 == 0 or update + 1 == updates:
            done = (update + 1) * args.rollout * args.envs
            speed = done / (time.perf_counter() - start)
            print(f"step {done:8}  reward {np.mean(window):7.3f}  {speed:,.0f}/s")
            window.clear()

    envs.close()
    if args.save:
        torch.save({"actor": actor.state_dict(), "critic": critic.state_dict()}, args.save)
        print(f"saved {args.save}")


if __name__ == "__main__":
    main()
