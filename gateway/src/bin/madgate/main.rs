//! The `madgate` command.

#![forbid(unsafe_code)]

mod files;
mod service;

fn main() {}
