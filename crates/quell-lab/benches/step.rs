//! Steps of RL-AQM's environment for `benches/instructions`:
//! `cargo bench -p quell-lab --bench step -- --only step/rl-aqm --until 2` runs one environment for
//! 2 simulated seconds and prints the number of steps.

use quell_qdisc::time::MS;
use std::hint::black_box;
use std::sync::Arc;

use quell_lab::env::{Actions, Cadence, Env, Knob, Randomization, Reading, Reward, Task};
use quell_sim::scenario::{Overrides, Scenario};

const PERIOD_MS: u64 = 20;

fn main() {
    let after = |flag: &str| std::env::args().skip_while(|a| a != flag).nth(1);
    let seconds = after("--until").and_then(|s| s.parse::<f64>().ok());
    if after("--only").is_none_or(|name| name != "step/rl-aqm") {
        return;
    }
    let task = Task {
        scenario: Arc::new(
            Scenario::load(Some("rl-aqm"), &Overrides::default()).expect("built in"),
        ),
        queue: "fifo limit 5000".into(),
        path: false,
        knob: Knob::Drop,
        bounds: (0.0, 0.5),
        initial: 0.0,
        cadence: Cadence::Every(PERIOD_MS * MS),
        actions: Actions::Steps(vec![0.0, 0.01, -0.01, 0.1, -0.1]),
        observe: vec![Reading::Delay, Reading::Utilisation, Reading::Knob],
        reward: Reward::parse("rlaqm").expect("a reward"),
        vary: Randomization::default(),
    };
    let task = task.checked().expect("a task");
    let mut env = Env::new(&task, 1).expect("an environment");
    let steps = (seconds.unwrap_or(10.0) * 1000.0) as u64 / PERIOD_MS;
    for step in 0..steps {
        // Raises and lowers the drop probability alternately, so that the link stays busy.
        env.step(&task, &[(step % 2 + 1) as f64]).expect("a step");
        black_box(env.reward(0));
    }
    println!("{steps}");
}
