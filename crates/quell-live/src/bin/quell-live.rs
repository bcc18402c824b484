//! `quell-live`: `quell live` for routers, without Python. `make quell-live` links it statically.

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
    use std::process::ExitCode;

    use quell_link::Error;
    use quell_live::options::{self, Table};
    use quell_live::{attach, live, steer, watch};

    /// A command, and the parts of its help besides the options: description, examples, and text
    /// below the options.
    struct Page {
        command: &'static str,
        about: &'static str,
        examples: &'static [&'static str],
        more: &'static str,
    }

    const LIVE: Page = Page {
        command: "quell-live",
        about: "Shapes and queues an interface's traffic, with any queue. If quell-live stops, traffic continues.",
        examples: options::live::EXAMPLES,
        more: "  --version, --help

quell-live watch [DEV...] samples the kernel's own queues: quell-live watch --help
quell-live steer DEV CONTROLLER --with KNOB sets their knobs: quell-live steer --help
quell-live attach DEV NAME puts one of quell's queues into the kernel: quell-live attach --help

SIGTERM and Ctrl-C send all held packets and restore the previous state; SIGHUP reads --config again.
",
    };
    const WATCH: Page = Page {
        command: "quell-live watch",
        about: "Samples the kernel's own queues, disciplines and classes, over rtnetlink. Changes nothing; needs no root.",
        examples: options::watch::EXAMPLES,
        more: "",
    };
    const STEER: Page = Page {
        command: "quell-live steer",
        about: "\
Sets knobs of the kernel's own queues: a controller sets a limit, a rate or a drop probability; your own program can also set a
target.",
        examples: options::steer::EXAMPLES,
        more: "
SIGTERM and Ctrl-C restore the previous settings; after kill -9 a second process does so.
",
    };
    const ATTACH: Page = Page {
        command: "quell-live attach",
        about: "\
Puts one of quell's queues into the kernel, as BPF: no process remains, and no packet leaves the kernel. Linux 6.16 or newer.",
        examples: options::attach::EXAMPLES,
        more: "
Given again with the same name, attach changes the rate and the limit of what is attached.
",
    };

    const DETACH: Page = Page {
        command: "quell-live detach",
        about: "Removes what attach put into the kernel and restores the previous queue.",
        examples: &["quell detach eth0"],
        more: "",
    };

    impl Page {
        /// Parses options and positional arguments. `None`: `--help` was given, and the help has
        /// been printed.
        fn read<T: Table>(
            &self,
            arguments: impl Iterator<Item = String>,
        ) -> Result<Option<(T, Vec<String>)>, Error> {
            let read = T::read(self.command, arguments)?;
            if read.is_none() {
                self.print::<T>();
            }
            Ok(read)
        }

        /// Prints the help.
        fn print<T: Table>(&self) {
            let as_quell_live = |line: &&str| {
                let line = line.replace("sudo ", "").replace("quell live", "quell");
                format!("  {}\n", line.replace("quell ", "quell-live "))
            };
            let examples: String = self.examples.iter().map(as_quell_live).collect();
            let (about, options, more) = (self.about, T::help(), self.more);
            print(&format!("{about}\n\n{examples}\n{options}{more}"));
        }
    }

    pub fn main() -> ExitCode {
        quell_live::reset_signals();
        match arguments().and_then(run) {
            Ok(status) => ExitCode::from(status),
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

    fn print(text: &str) {
        let _ = std::io::stdout().write_all(text.as_bytes());
    }

    /// Runs a command; returns the exit status.
    fn run(mut arguments: std::vec::IntoIter<String>) -> Result<u8, Error> {
        let command = arguments.as_slice().first().cloned().unwrap_or_default();
        if !command.starts_with('-') {
            arguments.next();
        }
        match command.as_str() {
            "" => LIVE.print::<live::Options>(),
            "watch" => {
                if let Some((mut options, words)) = WATCH.read::<watch::Options>(arguments)? {
                    options.devices = words;
                    watch::run(&options, &mut |_| {})?;
                }
            }
            "steer" => {
                if let Some((mut options, words)) = STEER.read::<steer::Options>(arguments)? {
                    options.words = words;
                    steer::run(&options)?;
                }
            }
            "attach" => {
                if let Some((mut options, words)) = ATTACH.read::<attach::Options>(arguments)? {
                    let mut words = words.into_iter();
                    options.dev = words.next().ok_or_else(|| {
                        let error = Error::new("no interface is named");
                        error.remedy("write quell-live attach eth0 hush --rate 18mbit")
                    })?;
                    let words: Vec<_> = words.collect();
                    options.words = (!words.is_empty()).then(|| words.join(" "));
                    attach::run(&options)?;
                }
            }
            "detach" => {
                if let Some((mut options, devices)) = DETACH.read::<attach::Detach>(arguments)? {
                    options.devices = devices;
                    attach::detach(&options)?;
                }
            }
            word if !word.starts_with('-') => {
                return Err(Error::new("unknown command")
                    .key(word)
                    .remedy("see quell-live --help"));
            }
            "--version" => {
                print(&format!("quell-live {}\n", env!("CARGO_PKG_VERSION")));
            }
            _ => {
                if let Some((options, words)) = LIVE.read::<live::Options>(arguments)? {
                    if let Some(word) = words.into_iter().next() {
                        let error = Error::new("unexpected argument").key(word);
                        return Err(error.remedy("see quell-live --help"));
                    }
                    return live::command(&options);
                }
            }
        }
        Ok(0)
    }
}
