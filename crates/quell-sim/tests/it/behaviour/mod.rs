//! Behaviour of scenarios beyond one TCP bottleneck, compared with numbers from first principles.

mod applications;
mod cake;
mod common;
mod ends;
mod external;
mod learning;
mod links;
mod modem;
mod outside;
mod recovery;
mod robustness;
mod soak;
mod topology;
mod transfers;
mod video_call;
mod waiting;
