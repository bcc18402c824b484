"""Train stable-baselines3's PPO on the vector environment that steps in Rust on all cores.

    python examples/sb3_vector.py [--steps 100000] [--envs 16]

Needs `make extras EXTRAS=sb3` in a checkout, `pip install 'quell-aqm[sb3]'` beside an installed wheel.
"""

from __future__ import annotations

import argparse
import sys

from quell.common.extras import install

try:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecNormalize

    from quell.envs.sb3 import VectorEnv
except ImportError as error:
    sys.exit(f"{error.name or 'stable_baselines3'} is missing: " + install("sb3"))


def main() -> None:
    """Train, and print what the last episodes returned."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--envs", type=int, default=16)
    args = parser.parse_args()
    torch.set_num_threads(1)
    envs = VecNormalize(VectorEnv("quell/RlAqm-v0", num_envs=args.envs, duration="4s"), norm_reward=False)
    model = PPO("MlpPolicy", envs, gamma=0.95, n_steps=128, seed=1, device="cpu")
    model.learn(total_timesteps=args.steps)
    returns = [episode["r"] for episode in model.ep_info_buffer or ()]
    print(f"PPO: return {sum(returns) / max(len(returns), 1):.1f} in the last {len(returns)} episodes of 200 steps")


if __name__ == "__main__":
    main()
