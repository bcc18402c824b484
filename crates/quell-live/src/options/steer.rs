//! The options of `quell steer`.

/// Example commands in the help text.
pub const EXAMPLES: &[&str] = &[
    "sudo quell steer eth0 wqm --with limit",
    "sudo quell steer eth0 rlaqm --with clsact --rate 20mbit",
    "sudo quell steer eth0 1:10 'learnqueue initial 20' --with limit --rate 20mbit",
    "sudo quell steer eth0 1:10 18mbit --with rate",
    "sudo quell steer eth0 pace --with rate --reflector 192.0.2.1 --reflector 192.0.2.2",
    "my-program | sudo quell steer eth0 - --with rate --min 1mbit --max 50mbit",
    "quell steer eth0 wqm --with limit --dry-run --duration 10s",
    "sudo quell steer --restore",
];

super::options! {
    /// The command line of `quell steer`.
    Options
    words {
        /// The interface, optionally a place in its tree of queues, and the controller's words;
        /// with `--restore`: interfaces.
        words: Vec<String> =
            "DEV [PARENT]" "the interface, and where on it: root (default), a class as in 1:10, a handle as in 10:",
            "CONTROLLER" "wqm, learnqueue or fixed (limit), rlaqm, pie or fixed (clsact, bpf), pace, cake_autorate or sqm_autorate (rate), \
                with options; a constant as in 50, 5ms, 18mbit or 2%; or - for lines on standard input";
    }
    command {
        with: Option<String>, "KNOB", "the knob: limit, target or rate; clsact: a drop probability, which a BPF program \
            applies before the queue; bpf: that of a queue of quell attach; several for lines on standard input: \
            limit,target", "";
        reflector: Vec<String>, "ADDR", "with --with rate and pace, cake_autorate or sqm_autorate: a host behind the line that gets \
            about 5 requests a second; repeatable", "";
        ecn: bool, "", "with clsact: mark packets of flows that use ECN instead of dropping them", "";
        every: Option<String>, "TIME", "time between decisions, 1ms to 1s", "the controller's own";
        rate: Option<String>, "RATE", "rate of the line", "that of the queue, the class above it or the interface";
        min: Option<String>, "VALUE", "smallest value that is set: packets, a time, a rate or a probability", "";
        max: Option<String>, "VALUE", "largest value that is set", "";
        valid: Option<String>, "TIME", "how long a line on standard input is valid", "10s";
        hands_off: bool, "", "end if another program changes the queue (default)", "";
        insist: bool, "", "set the knob again if another program changes it", "";
        dry_run: bool, "", "print what would be set; change nothing", "";
        json: bool, "", "samples as JSON lines on standard output", "";
        duration: Option<String>, "TIME", "stop after this time: 60s", "";
        restore: bool, "", "restore the settings that a killed quell steer left, on each DEV or on all, and exit", "";
        quiet: bool, "", "print only errors", "";
    }
}
