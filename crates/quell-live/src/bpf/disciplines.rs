//! The compiled disciplines.

/// A discipline that `make bpf` has compiled.
#[derive(Clone, Copy, Debug)]
pub struct Discipline {
    /// Name on the command line.
    pub name: &'static str,
    /// Compiled object file (ELF).
    pub object: &'static [u8],
    /// Whether it marks packets by default, as the discipline of this name in queue words does;
    /// `None`: it cannot mark.
    pub ecn: Option<bool>,
}

/// All disciplines that can be attached.
pub const DISCIPLINES: [Discipline; 5] = [
    Discipline {
        name: "codel",
        object: include_bytes!("../../bpf/codel.bpf.o"),
        ecn: Some(false),
    },
    Discipline {
        name: "fifo",
        object: include_bytes!("../../bpf/fifo.bpf.o"),
        ecn: None,
    },
    Discipline {
        name: "fq_codel",
        object: include_bytes!("../../bpf/fq_codel.bpf.o"),
        ecn: Some(true),
    },
    Discipline {
        name: "hush",
        object: include_bytes!("../../bpf/hush.bpf.o"),
        ecn: Some(true),
    },
    Discipline {
        name: "rlaqm",
        object: include_bytes!("../../bpf/rlaqm.bpf.o"),
        ecn: None,
    },
];
