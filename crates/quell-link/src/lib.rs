//! What the simulator and the live plane share: units, queue words, link rates, histograms and result records.

pub mod record;
