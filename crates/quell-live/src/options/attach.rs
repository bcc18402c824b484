//! The options of `quell attach` and `quell detach`.

/// Example commands in the help text.
pub const EXAMPLES: &[&str] = &[
    "sudo quell attach eth0 hush --rate 18mbit",
    "sudo quell attach eth0 hush noecn --rate 20mbit",
    "sudo quell attach eth0",
    "sudo quell detach eth0",
];

super::options! {
    /// The command line of `quell attach`.
    Options
    words {
        /// Interface.
        dev: String = "DEV" "the interface";
        /// Discipline's name, optionally with `ecn` or `noecn`; `None`: print what is attached.
        words: Option<String> = "NAME [ecn|noecn]" "the queue: hush, fq_codel (with noecn they drop packets of flows that use ECN, too), codel (with ecn \
            it marks them), rlaqm or fifo; without: print what is attached, with its gauges, as JSON lines";
    }
    command {
        rate: Option<String>, "RATE", "shape to this rate; without it, each queue of an interface with several (mq) gets its own copy", "";
        limit: Option<u32>, "N", "packets at most", "";
        replace: bool, "", "replace a discipline that another program configured; detach restores it", "";
        dry_run: bool, "", "print what would be done; change nothing", "";
        quiet: bool, "", "print only errors", "";
    }
}

super::options! {
    /// The command line of `quell detach`.
    Detach
    words {
        /// Interfaces.
        devices: Vec<String> = "DEV..." "interfaces";
    }
    command {
        quiet: bool, "", "print only errors", "";
    }
}
