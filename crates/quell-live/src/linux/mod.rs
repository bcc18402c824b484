//! Linux: devices, namespaces, the loop. Every `unsafe` says what makes it sound.

mod address;
mod device;
mod engine;
pub mod gate;
mod init;
mod pace;
pub mod shell;
mod sys;
