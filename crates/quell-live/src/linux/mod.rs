//! Linux: devices, namespaces, the loop. Every `unsafe` says what makes it sound.

mod address;
mod device;
mod door;
mod engine;
mod gate;
mod host;
mod init;
pub mod live;
mod pace;
mod packet;
pub mod rules;
mod serve;
pub mod shell;
mod sys;
mod xdp;
