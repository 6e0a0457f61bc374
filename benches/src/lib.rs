//! Criterion suites and workload benches of Tidelock.
