//! Asking a policy allocates nothing.

use std::alloc::System;

use quell_qdisc::policy::Policy;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn asking_a_policy_allocates_nothing() {
    let bytes = include_bytes!("data/policy/torch.safetensors");
    let policy = Policy::load("torch.safetensors", bytes).unwrap();
    for policy in [policy.to_integers(), policy] {
        let (x, mut y) = ([0.5; 17 * 5], vec![0.0; 17 * policy.outputs()]);
        let mut scratch = policy.scratch();
        // The CPU's features are looked up once.
        policy.forward(&x[..5], &mut scratch);
        let mut allocations = || {
            let region = Region::new(GLOBAL);
            for _ in 0..10 {
                policy.forward(&x[..5], &mut scratch);
                policy.forward_batch(&x, &mut scratch, &mut y);
            }
            let change = region.change();
            change.allocations + change.reallocations
        };
        // The main thread of the tests may allocate meanwhile, but not each time.
        let least = (0..20).map(|_| allocations()).min();
        assert_eq!(least, Some(0));
    }
}
