//! The programs that the book shows do what it says.
#![allow(missing_docs, reason = "a test")]

use std::process::Command;
use tidelock_conformance::programs::Running;

fn start(args: &[&str]) -> Running {
    Running::start(Command::new(env!("CARGO_BIN_EXE_first_steps")).args(args))
}

#[test]
fn both_see_both_rovers_move() {
    let host = start(&[]);
    let address = host.line();
    let guest = start(&[&address]);
    for program in [&guest, &host] {
        program.draws("another's rover is at ");
        program.draws("my rover is at ");
    }
}

#[test]
fn the_page_shows_the_program() {
    let program = include_str!("../programs/first_steps.rs");
    let page = include_str!("../src/getting-started.md");
    assert!(
        page.contains(&format!("```rust,no_run\n{program}```")),
        "getting-started.md shows another program than programs/first_steps.rs"
    );
    let lines = format!("in one file of {} lines", program.lines().count());
    assert!(page.contains(&lines), "getting-started.md should say {lines:?}");
}
