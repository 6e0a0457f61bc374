//! The first program that a person reads does what it says, in two processes and over a real socket.

use std::process::Command;
use tidelock_conformance::programs::Running;

fn start(args: &[&str]) -> Running {
    Running::start(Command::new(env!("CARGO_BIN_EXE_quickstart")).args(args))
}

#[test]
fn two_processes_draw_a_rover_that_one_of_them_steers() {
    let host = start(&["host"]);
    let address = host.line();
    let guest = start(&["join", &address]);
    guest.draws("guest 1: guest 1 is at");
    host.draws("host: guest 1 is at");
}

#[test]
fn one_process_shows_both_sides() {
    let both = start(&[]);
    both.draws("guest 1: guest 1 is at");
    both.draws("host: guest 1 is at");
}

#[test]
fn it_is_one_short_file() {
    assert!(include_str!("../src/quickstart.rs").lines().count() <= 60);
}
