//! The holdfast-bench program.
fn main() {}
