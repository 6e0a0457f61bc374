//! The example of a policy outside of the library does what it promises.

use std::process::Command;

#[test]
fn a_policy_of_ones_own_gates_and_accepts() {
    let output = Command::new(env!("CARGO_BIN_EXE_own_policy")).output().expect("the example was built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
