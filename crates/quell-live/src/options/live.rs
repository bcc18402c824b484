//! The options of `quell live`.

use std::path::PathBuf;

/// Example commands in the help text.
pub const EXAMPLES: &[&str] = &[
    "sudo quell live --dev eth0 --rate 18mbit --aqm fq_codel",
    "sudo quell live --dev eth0 --rate 18mbit --ingress 90mbit --aqm cake --metrics 9100",
    "sudo quell live --dev eth0 --autorate --reflector 192.0.2.1 --reflector 192.0.2.2",
    "sudo quell live --config /etc/quell/live.toml",
    "quell live --check /etc/quell/live.toml",
    "sudo quell live --dev eth0 --rate 18mbit --dry-run --duration 60s",
    "sudo quell live --restore",
];

super::options! {
    /// Options of the command line and of the configuration file.
    Options
    words {}
    file {
        dev: Option<String>, "NAME", "the interface", "", Start;
        rate: Option<String>, "RATE", "rate of egress traffic, as in tc: 18mbit", "", File;
        aqm: Option<String>, "WORDS", "queue words as in tc (quell queues)", "fq_codel", File;
        ingress: Option<String>, "RATE", "rate of ingress traffic", "not managed", File;
        ingress_aqm: Option<String>, "WORDS", "queue of ingress traffic", "as --aqm", File;
        autorate: bool, "", "shape both directions at rates that a loop sets by the delay of reflectors' answers, \
            or of TCP traffic if none answers (pace); --aqm is then pace (default), cake_autorate or \
            sqm_autorate; pace starts at --rate and --ingress", "", Start;
        reflector or "reflectors": Vec<String>, "ADDR", "with --autorate: a host behind the line that gets about 5 requests a second; \
            repeatable", "", Start;
        overhead: Option<u32>, "BYTES", "link-layer bytes per packet", "14", File;
        tunnels: bool, "", "distinguish flows by the inner headers of GRE, 6in4 and VXLAN", "", Start;
        to: Option<String>, "NAME", "in line: forward frames between --dev and this interface", "", Start;
        backend or "door": Option<String>, "af_packet|af_xdp", "in line: what receives and sends the frames", "af_packet", Start;
        no_fail_open: bool, "", "in line: accept that traffic stops when quell live stops", "", File;
        cpu: Option<String>, "LIST", "one packet loop on each of these CPUs: 0,2-3", "one, on any", Start;
        status: Option<String>, "PATH", "Unix socket that serves the state as JSON", "", Start;
        metrics: Option<u16>, "PORT", "port on 127.0.0.1 for Prometheus metrics", "", Start;
        dashboard: Option<u16>, "[PORT]", "page with live charts of the queues on 127.0.0.1, at this port or any free one", "", Start;
    }
    command {
        config: Option<PathBuf>, "FILE", "TOML file with these options as keys; read again on SIGHUP", "";
        check: Option<PathBuf>, "FILE", "check a configuration file as --config reads it, and exit: with 0, or with 1 and a line for each fault; \
            needs no root and changes nothing", "";
        view: bool, "", "show the directions live, in the terminal", "";
        dry_run: bool, "", "work on copies of the packets; change nothing", "";
        duration: Option<String>, "TIME", "stop after this time: 60s", "";
        restore: bool, "", "remove what a killed quell live left behind, and exit", "";
        print_dropin: bool, "", "print a drop-in that allows the systemd unit to reach the reflectors, and exit", "";
        quiet: bool, "", "print only errors", "";
    }
}
