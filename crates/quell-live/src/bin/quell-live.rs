//! `quell-live`: `quell live` for routers, without Python. Build it static with `make quell-live`.

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    linux::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("quell-live needs Linux: NFQUEUE");
    std::process::exit(2);
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io::Write;
    use std::iter::Peekable;
    use std::process::ExitCode;
    use std::str::FromStr;

    use quell_link::Error;
    use quell_live::live::{self, Options};
    use quell_live::options::Table;
    use quell_live::options::live::EXAMPLES;
    use quell_live::{attach, steer, watch};

    fn help() -> String {
        let examples: String = EXAMPLES
            .iter()
            .map(|words| format!("  quell-live {words}\n"))
            .collect();
        format!(
            "\
Shapes and queues the traffic that leaves (and enters) an interface, with any queue. Fails open.

{examples}
{}  --version, --help

quell-live watch [DEV...] samples the kernel's own queues: quell-live watch --help
quell-live steer DEV CONTROLLER --with KNOB turns their knobs: quell-live steer --help
quell-live attach DEV NAME puts a queue of quell's into the kernel: quell-live attach --help

SIGTERM and Ctrl-C send all held packets and restore the previous state; SIGHUP reads --config again.
",
            Options::help()
        )
    }

    const WATCH_HELP: &str = "\
Samples the kernel's own queues, disciplines and classes, over rtnetlink. Changes nothing; needs no root.

  quell-live watch
  quell-live watch eth0 --every 10ms --out queues.csv --rotate 100mb --keep 10
  quell-live watch eth0 --every 100ms --json --duration 60s

  DEV...               interfaces; default: all
  --every TIME         time between samples, 1ms to 60s; default: 1s
  --duration TIME      stop after this time: 60s
  --out FILE           write samples to this file: .csv or .jsonl
  --rotate SIZE|TIME   begin a new file at this size or age: 100mb, 3600s
  --keep N             keep the N finished files that are newest
  --json               JSON lines on standard output
  --metrics PORT       port on 127.0.0.1 for Prometheus metrics
  --dashboard [PORT]   page on 127.0.0.1 that draws what the queues do; default: a free port
  --flows              also the flows of fq_codel, cake and so on
  --quiet              print only errors
";

    const STEER_HELP: &str = "\
Turns the knobs of the kernel's own queues: a controller sets a limit, a rate or a drop probability, or a program of yours these or a
target.

  quell-live steer eth0 wqm --with limit
  quell-live steer eth0 rlaqm --with clsact --rate 20mbit
  quell-live steer eth0 1:10 'learnqueue initial 20' --with limit --rate 20mbit
  quell-live steer eth0 1:10 18mbit --with rate
  quell-live steer eth0 pace --with rate --reflector 192.0.2.1 --reflector 192.0.2.2
  my-program | quell-live steer eth0 - --with rate --min 1mbit --max 50mbit
  quell-live steer eth0 wqm --with limit --dry-run --duration 10s
  quell-live steer --restore

  DEV [PARENT]         the interface, and where on it: root (default), a class as in 1:10, a handle as in 1:
  CONTROLLER           wqm, learnqueue or fixed (limit), rlaqm, pie or fixed (clsact, bpf), pace, cake_autorate or
                       sqm_autorate (rate), with options; a value that stays; or - for lines on standard input
  --with KNOB          limit, target or rate; clsact: a drop probability, by a BPF program; bpf: that of a queue of quell attach;
                       several for lines: limit,target
  --reflector ADDR     with --with rate and pace, cake_autorate or sqm_autorate: a host behind the line that is asked some
                       5 times a second; repeat for more
  --ecn                with clsact: mark packets of flows that use ECN instead of dropping them
  --every TIME         time between decisions, 1ms to 1s; default: the controller's
  --rate RATE          rate of the line, where neither the queue nor the interface says it
  --min VALUE          set no less: packets, a time, a rate or a probability
  --max VALUE          set no more
  --valid TIME         what a line on standard input sets holds for this time; default: 10s
  --hands-off          end if somebody else changes the queue (default)
  --insist             put back what somebody else changes
  --dry-run            print what would be set; change nothing
  --json               samples as JSON lines on standard output
  --duration TIME      stop after this time: 60s
  --restore [DEV...]   bring back what a killed quell steer left changed, and exit
  --quiet              print only errors

SIGTERM and Ctrl-C bring back what was before; after kill -9 a second process does.
";

    const ATTACH_HELP: &str = "\
Puts a queue of quell's into the kernel, as BPF: no process stays, and no packet leaves the kernel. Linux 6.16 or newer.

  quell-live attach eth0 hush --rate 18mbit
  quell-live attach eth0
  quell-live detach eth0

  DEV                  the interface
  NAME [ecn|noecn]     the queue, and whether it marks packets of flows that use ECN; without: print what is attached, with its gauges,
                       as JSON lines
  --rate RATE          shape to this rate; without it, queues of an interface with several (mq) get one each
  --limit N            packets at most
  --replace            replace a discipline that somebody has chosen; detach brings it back
  --dry-run            print what would be done; change nothing
  --quiet              print only errors

Given again with the same name, attach changes the rate and the limit of what is attached.
";

    /// What is to be done.
    enum Asked {
        Attach(attach::Options),
        Detach(Vec<String>, bool),
        Steer(steer::Options),
        SteerRestore(Vec<String>, bool),
        Live(Options),
        Watch(watch::Options),
        Print(String),
    }

    pub fn main() -> ExitCode {
        match arguments().and_then(asked).and_then(answer) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "quell: {error}");
                ExitCode::from(2)
            }
        }
    }

    fn arguments() -> Result<std::vec::IntoIter<String>, Error> {
        let text = |argument: std::ffi::OsString| {
            argument.into_string().map_err(|bytes| {
                Error::new(format!("{bytes:?} is not text in UTF-8")).remedy("write it in UTF-8")
            })
        };
        let all: Result<Vec<_>, _> = std::env::args_os().skip(1).map(text).collect();
        all.map(Vec::into_iter)
    }

    fn answer(asked: Asked) -> Result<(), Error> {
        match asked {
            Asked::Live(options) => live::command(&options),
            Asked::Watch(options) => watch::run(&options, &mut |_| {}),
            Asked::Attach(options) => attach::run(&options),
            Asked::Detach(devices, quiet) => attach::detach(&devices, quiet),
            Asked::Steer(options) => steer::run(&options),
            Asked::SteerRestore(devices, quiet) => steer::restore(&devices, quiet),
            Asked::Print(text) => {
                let _ = std::io::stdout().write_all(text.as_bytes());
                Ok(())
            }
        }
    }

    fn asked(arguments: std::vec::IntoIter<String>) -> Result<Asked, Error> {
        let mut arguments = arguments.peekable();
        if arguments.peek().is_none() {
            return Ok(Asked::Print(help()));
        }
        if arguments.next_if_eq("watch").is_some() {
            return watched(arguments);
        }
        if arguments.next_if_eq("steer").is_some() {
            return steered(arguments);
        }
        if arguments.next_if_eq("attach").is_some() {
            return attached(arguments);
        }
        if arguments.next_if_eq("detach").is_some() {
            return detached(arguments);
        }
        if arguments.clone().any(|word| word == "--version") {
            let text = format!("quell-live {}\n", env!("CARGO_PKG_VERSION"));
            return Ok(Asked::Print(text));
        }
        let Some((options, mut words)) = Options::read("quell-live", arguments)? else {
            return Ok(Asked::Print(help()));
        };
        match words.pop() {
            Some(word) => Err(Error::new("unknown option")
                .key(word)
                .remedy("see quell-live --help")),
            None => Ok(Asked::Live(options)),
        }
    }

    /// `--name=value`, or the name alone.
    fn split(argument: String) -> (String, Option<String>) {
        match argument.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (argument, None),
        }
    }

    /// The value behind `=`, or the next argument.
    fn valued(
        name: &str,
        inline: &Option<String>,
        arguments: &mut impl Iterator<Item = String>,
    ) -> Result<String, Error> {
        let value = inline.clone().or_else(|| arguments.next());
        value.ok_or_else(|| Error::new("needs a value").key(name))
    }

    fn watched(mut arguments: Peekable<impl Iterator<Item = String>>) -> Result<Asked, Error> {
        let mut options = watch::Options::default();
        while let Some(argument) = arguments.next() {
            if !argument.starts_with('-') {
                options.devices.push(argument);
                continue;
            }
            let (name, inline) = split(argument);
            let mut value = || valued(&name, &inline, &mut arguments);
            match name.as_str() {
                "--every" => options.every = Some(value()?),
                "--duration" => options.duration = Some(value()?),
                "--out" => options.out = Some(value()?.into()),
                "--rotate" => options.rotate = Some(value()?),
                "--keep" => options.keep = Some(number(&name, &value()?)?),
                "--json" => options.json = true,
                "--metrics" => options.metrics = Some(number(&name, &value()?)?),
                "--dashboard" => options.dashboard = Some(port(&name, &inline, &mut arguments)?),
                "--flows" => options.flows = true,
                "--quiet" | "-q" => options.quiet = true,
                "--help" | "-h" => return Ok(Asked::Print(WATCH_HELP.to_owned())),
                _ => return Err(unknown(name, "watch")),
            }
        }
        Ok(Asked::Watch(options))
    }

    fn steered(mut arguments: impl Iterator<Item = String>) -> Result<Asked, Error> {
        let mut options = steer::Options::default();
        let (mut hands_off, mut restore) = (false, false);
        while let Some(argument) = arguments.next() {
            if !argument.starts_with('-') || argument == "-" {
                let words = argument.split_whitespace();
                options.words.extend(words.map(str::to_owned));
                continue;
            }
            let (name, inline) = split(argument);
            let mut value = || valued(&name, &inline, &mut arguments);
            match name.as_str() {
                "--with" => options.with = Some(value()?),
                "--reflector" => options.reflectors.push(value()?),
                "--every" => options.every = Some(value()?),
                "--rate" => options.rate = Some(value()?),
                "--min" => options.min = Some(value()?),
                "--max" => options.max = Some(value()?),
                "--valid" => options.valid = Some(value()?),
                "--duration" => options.duration = Some(value()?),
                "--hands-off" => hands_off = true,
                "--ecn" => options.ecn = true,
                "--insist" => options.insist = true,
                "--dry-run" => options.dry_run = true,
                "--json" => options.json = true,
                "--restore" => restore = true,
                "--quiet" | "-q" => options.quiet = true,
                "--help" | "-h" => return Ok(Asked::Print(STEER_HELP.to_owned())),
                _ => return Err(unknown(name, "steer")),
            }
        }
        if hands_off && options.insist {
            let error = Error::new("excludes --insist").key("--hands-off");
            return Err(error.remedy("give one of the two"));
        }
        Ok(match restore {
            true => Asked::SteerRestore(options.words, options.quiet),
            false => Asked::Steer(options),
        })
    }

    fn attached(mut arguments: impl Iterator<Item = String>) -> Result<Asked, Error> {
        let mut options = attach::Options::default();
        let mut words = Vec::new();
        while let Some(argument) = arguments.next() {
            if !argument.starts_with('-') {
                words.push(argument);
                continue;
            }
            let (name, inline) = split(argument);
            let mut value = || valued(&name, &inline, &mut arguments);
            match name.as_str() {
                "--rate" => options.rate = Some(value()?),
                "--limit" => options.limit = Some(number(&name, &value()?)?),
                "--replace" => options.replace = true,
                "--dry-run" => options.dry_run = true,
                "--quiet" | "-q" => options.quiet = true,
                "--help" | "-h" => return Ok(Asked::Print(ATTACH_HELP.to_owned())),
                _ => return Err(unknown(name, "attach")),
            }
        }
        let usage = "quell-live attach eth0 hush --rate 18mbit";
        let Some((dev, words)) = words.split_first() else {
            return Err(Error::new("no interface is named").remedy(usage));
        };
        options.dev = dev.clone();
        options.words = (!words.is_empty()).then(|| words.join(" "));
        Ok(Asked::Attach(options))
    }

    fn detached(arguments: impl Iterator<Item = String>) -> Result<Asked, Error> {
        let (mut devices, mut quiet) = (Vec::new(), false);
        for argument in arguments {
            match argument.as_str() {
                "--quiet" | "-q" => quiet = true,
                "--help" | "-h" => return Ok(Asked::Print(ATTACH_HELP.to_owned())),
                option if option.starts_with('-') => return Err(unknown(argument, "attach")),
                _ => devices.push(argument),
            }
        }
        Ok(Asked::Detach(devices, quiet))
    }

    fn unknown(name: String, command: &str) -> Error {
        let error = Error::new("unknown option").key(name);
        error.remedy(format!("see quell-live {command} --help"))
    }

    /// The port, if one follows; else 0: any that is free.
    fn port(
        name: &str,
        inline: &Option<String>,
        arguments: &mut Peekable<impl Iterator<Item = String>>,
    ) -> Result<u16, Error> {
        let digits = |next: &String| next.bytes().all(|b| b.is_ascii_digit());
        let given = inline.clone().or_else(|| arguments.next_if(digits));
        given.map_or(Ok(0), |text| number(name, &text))
    }

    fn number<T: FromStr>(name: &str, text: &str) -> Result<T, Error> {
        let no = || Error::new(format!("\"{text}\" is not such a number")).key(name);
        text.parse().map_err(|_| no())
    }
}
