//! Linux: devices, namespaces, the loop. Every `unsafe` says what makes it sound.

mod address;
mod device;
mod engine;
mod init;
pub mod shell;
mod sys;
