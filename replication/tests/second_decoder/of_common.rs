//! The schema of the tests' small game.

use super::{Code, Schema, fields};

/// The schema of `common::schema`, as the page describes it.
pub fn described() -> Schema {
    let plain = |max: u32| fields(&[("value", Code::Number { max, order: 2 })]);
    let name = || fields(&[("value", Code::Entity)]);
    let metres = Code::Number { max: 100_000, order: 4 };
    let order = fields(&[("target", Code::Entity), ("number", Code::Number { max: u32::MAX, order: 2 })]);
    Schema::new(
        &[
            ("position", fields(&[("x", metres), ("y", metres)])),
            ("health", plain(65_535)),
            ("banner", plain(1000)),
            ("link", name()),
            ("child_of", name()),
            ("tag", Vec::new()),
        ],
        3,
        2,
        &[("order", true, order), ("chat", true, fields(&[("text", Code::Text { cap: 32 })]))],
    )
}
