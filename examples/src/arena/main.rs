//! The front door: a host and guests, their worlds full of entities that move, come and go, under all kinds of authority side by
//! side, over QUIC on a bad network; and at the end, are all worlds equal, and were they in every tick in which they must be?
//!
//! `arena` alone runs all of them in one process, and shows them live if it runs in a terminal. `arena host` prints an address, and `arena join ADDRESS` in another terminal, or
//! on another machine, comes in. The exit status is 0 only if the worlds ended equal, judged by each process for itself.

#![forbid(unsafe_code)]

mod bots;
mod failure;
mod game;
mod gauge;
mod live;
mod options;
mod report;
mod roles;
mod rules;
mod run;
mod stadium;
mod trail;

use clap::Parser;
use options::{Cli, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        None => run::all_in_one(&cli.options),
        Some(Command::Host(host)) => run::host(host),
        Some(Command::Join(join)) => run::join(join),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("arena: {failure}");
            ExitCode::FAILURE
        }
    }
}
